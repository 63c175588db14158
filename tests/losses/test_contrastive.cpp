// SPDX-License-Identifier: Apache-2.0
// What the contrastive losses have in common, their special cases, and the gradients of a wrongly treated gather. The
// general checks of all loss cases are elsewhere.
#include "tests/support/counted_transport.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/common/division.h"
#include "weft/losses/contrastive/clip.h"
#include "weft/losses/contrastive/dcl.h"
#include "weft/losses/contrastive/info_nce.h"
#include "weft/losses/contrastive/logit_scale.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/losses/contrastive/siglip.h"
#include "weft/losses/contrastive/supcon.h"
#include "weft/optim/accumulate/cached.h"

using namespace weft;

namespace {

constexpr Init init = {.key = {4}, .dtype = DType::f64};

struct Named {
  std::string name;
  std::function<Var(const Var&, const Var&, Communicator&)> loss;
};

// The indices of this rank's samples, twice.
Tensor numbered_twice(const Var& samples, Communicator& comm) {
  const Division division(samples.shape()[0], comm);
  const Tensor numbers = Tensor::arange(division.total).slice(division.first, division.first + division.mine());
  return concat({Var(numbers), Var(numbers)}, 0).value();
}

Var constant(double value, const Var& features) {
  return replicated_constant(Tensor::full({}, value, features.dtype() == DType::bf16 ? DType::f32 : features.dtype()));
}

// Every loss of two sets of features, with every key schedule.
std::vector<Named> all_losses() {
  std::vector<Named> all;
  for (const KeySchedule schedule :
       {KeySchedule{KeySchedule::gather}, KeySchedule{KeySchedule::ring}, KeySchedule{KeySchedule::both_ways},
        KeySchedule{KeySchedule::per_rank}, KeySchedule{KeySchedule::chunked, 2}}) {
    const std::string way = ", way " + std::to_string(static_cast<int>(schedule.kind));
    all.push_back(
        {"nt_xent" + way, [=](auto& a, auto& b, auto& comm) { return nt_xent(a, b, {.schedule = schedule}, comm); }});
    all.push_back(
        {"info_nce" + way, [=](auto& a, auto& b, auto& comm) { return info_nce(a, b, {.schedule = schedule}, comm); }});
    all.push_back({"symmetric info_nce" + way, [=](auto& a, auto& b, auto& comm) {
                     return info_nce(a, b, {.schedule = schedule, .symmetric = true}, comm);
                   }});
    all.push_back({"dcl" + way, [=](auto& a, auto& b, auto& comm) {
                     return dcl(a, b, {.weights = DclWeights::of_batch, .schedule = schedule}, comm);
                   }});
    for (const ClipForm form : {ClipForm::one_tower, ClipForm::local_rows, ClipForm::replicated})
      all.push_back(
          {"clip_loss in form " + std::to_string(static_cast<int>(form)) + way, [=](auto& a, auto& b, auto& comm) {
             return clip_loss(a, b, constant(3, a), {form, schedule}, comm);
           }});
    all.push_back({"siglip_loss" + way, [=](auto& a, auto& b, auto& comm) {
                     return siglip_loss(a, b, constant(3, a), constant(-1, a), schedule, comm);
                   }});
    all.push_back({"supcon" + way, [=](auto& a, auto& b, auto& comm) {
                     Tensor labels({2 * a.shape()[0]}, DType::i64);
                     for (int64_t i = 0; i < labels.size(); ++i) labels.mutate<int64_t>()[i] = i % 2;
                     return supcon(concat({a, b}, 0), labels, 2, {.schedule = schedule}, comm);
                   }});
  }
  return all;
}

struct Step {
  double loss;
  DType dtype;
  Tensor first, second;  // gradients
};
Step step(const Named& c, const Tensor& a, const Tensor& b, Communicator& comm) {
  Tape tape;
  const Var first = tape.watch(a), second = tape.watch(b);
  const Var share = c.loss(first, second, comm);
  const auto gradients = tape.gradient(share, {first, second});
  return {sum_over_ranks(share.value().item(), comm), share.dtype(), gradients[0].value(), gradients[1].value()};
}

}  // namespace

TEST_CASE("contrastive losses of an empty batch are zero, and one sample has no negatives") {
  for (const Named& c : all_losses()) {
    INFO(c.name);
    on_ranks({1, 2, 3}, [&](Communicator& comm) {
      const Step empty = step(c, Tensor({0, 3}, DType::f64), Tensor({0, 3}, DType::f64), comm);
      expect(empty.loss == 0 && empty.first.shape() == Shape{0, 3}, "no samples");
      const int64_t mine = number(comm) == comm.size() / 2;
      const Tensor a = data_of(7, {mine, 3}), b = data_of(8, {mine, 3});
      const Step one = step(c, a, b, comm);
      const bool siglip = c.name.starts_with("siglip");  // SigLIP scores every pair separately
      const double logit = comm.all_reduce((sum(Var(a) * b) * 3.0 - static_cast<double>(mine)).value()).item();
      expect(std::abs(one.loss - (siglip ? std::log1p(std::exp(-logit)) : 0)) < 1e-12,
             "one sample: " + std::to_string(one.loss));
      const double all = comm.all_reduce((sum(abs(one.first)) + sum(abs(one.second))).value()).item();
      expect(siglip ? all > 0 : all < 1e-12, "its gradient");
    });
  }
}

TEST_CASE("contrastive losses of bf16 features equal those in f32, with gradients rounded once") {
  for (const Named& c : all_losses()) {
    INFO(c.name);
    on_ranks({1, 3}, [&](Communicator& comm) {
      const int64_t mine = 2 + number(comm);
      const Tensor a = data_of(number(comm), {mine, 4}, 1, DType::bf16),
                   b = data_of(number(comm), {mine, 4}, 2, DType::bf16);
      const Step narrow = step(c, a, b, comm), wide = step(c, a.to(DType::f32), b.to(DType::f32), comm);
      expect(narrow.dtype == DType::f32 && narrow.loss == wide.loss, "the loss is one of f32");
      expect_same_bits(narrow.first, wide.first.to(DType::bf16));
      expect_same_bits(narrow.second, wide.second.to(DType::bf16));
    });
  }
}

TEST_CASE("a contrastive loss in a subgroup covers the ranks of that group alone") {
  run_ranks(5, [](Communicator& world) {
    const auto group = world.split(number(world) % 2, -number(world));
    Rows rows;
    Vars firsts, seconds;
    const auto rows_of = [](int rank) { return int64_t{1 + rank % 3}; };
    for (int r = 0; r < group->size(); ++r) {
      const int global = group->global({r}).value;
      rows.push_back(rows_of(global));
      firsts.push_back(data_of(global, {rows.back(), 3}, 1));
      seconds.push_back(data_of(global, {rows.back(), 3}, 2));
    }
    const auto me = static_cast<size_t>(number(*group));
    for (const Named& c : all_losses()) {
      if (c.name.starts_with("supcon")) continue;  // labels count from a rank's first sample
      const Step mine = step(c, firsts[me].value(), seconds[me].value(), *group);
      const auto alone = world.split(number(world));
      const Step whole = step(c, concat(firsts, 0).value(), concat(seconds, 0).value(), *alone);
      expect(std::abs(mine.loss - whole.loss) < 1e-12, c.name);
      expect_close(concat({group->all_gather_v(mine.first, rows), group->all_gather_v(mine.second, rows)}, 0),
                   concat({whole.first, whole.second}, 0));
    }
  });
}

TEST_CASE("SupCon with one class per sample is NT-Xent, and CLIP with a fixed scale is symmetric InfoNCE") {
  on_ranks([](Communicator& comm) {
    const int64_t mine = (number(comm) + 1) % 3;
    const Tensor a = data_of(number(comm), {mine, 3}, 1), b = data_of(number(comm), {mine, 3}, 2);
    const Named by_class{"",
                         [](auto&x, auto&y, auto&c) {
                           return supcon(concat({x, y}, 0), numbered_twice(x, c), 30, {.temperature = 0.5}, c);
                         }},
        by_view{"", [](auto&x, auto&y, auto&c) { return nt_xent(x, y, {}, c); }},
        towers{"", [](auto&x, auto&y,
                      auto&c) { return clip_loss(l2_normalize(x), l2_normalize(y), constant(5, x), {}, c); }},
        symmetric{"",
                  [](auto&x, auto&y, auto&c) { return info_nce(x, y, {.temperature = 0.2, .symmetric = true}, c); }};
    for (const auto& [one, other] : {std::pair(by_class, by_view), std::pair(towers, symmetric)}) {
      const Step s = step(one, a, b, comm), t = step(other, a, b, comm);
      expect(std::abs(s.loss - t.loss) < 1e-12, "the loss");
      expect_close(s.first, t.first);
      expect_close(s.second, t.second);
    }
  });
}

TEST_CASE("DCLW with DclWeights::of_rank uses weights of this rank's pairs alone") {
  on_ranks([](Communicator& comm) {
    const int64_t mine = 1 + number(comm);
    const Tensor a = data_of(number(comm), {mine, 3}, 1), b = data_of(number(comm), {mine, 3}, 2);
    const auto loss = [&](DclWeights weights) {
      return dcl(a, b, {.temperature = 0.5, .weights = weights}, comm).value().item();
    };
    const Var similarities = sum(l2_normalize(a) * l2_normalize(b), 1);
    const Var surplus = 1 - static_cast<double>(mine) * softmax(similarities / 0.5);  // how far its weight exceeds one
    const double total = comm.all_reduce(scalar(static_cast<double>(mine))).item();
    const double expected = loss(DclWeights::none) - sum(surplus * similarities).value().item() / 0.5 / total;
    expect(std::abs(loss(DclWeights::of_rank) - expected) < 1e-12, "this rank's share");
    expect(comm.size() == 1 || loss(DclWeights::of_rank) != loss(DclWeights::of_batch), "not those of the batch");
  });
}

TEST_CASE("LogitScale learns a logarithm, starts at the given value and stays within its limits") {
  LogitScale scale("scale", init), ten("ten", init, {.initial = 10, .most = 50});
  CHECK(std::abs(scale(Var(scalar(0))).value().item() - 1 / 0.07) < 1e-12);
  CHECK(std::abs(ten(Var(scalar(0))).value().item() - 10) < 1e-12);
  REQUIRE(scale.parameters().size() == 1);
  CHECK(scale.parameters()[0]->name == "scale.log_scale");
  Tape tape;
  const Var features = tape.watch(data_of(0, {2, 2}));
  CHECK(tape.gradient(scale(features), {tape.watch(scale.log_scale)})[0].value().item() ==
        scale(features).value().item());
  const Tensor memory = ten.log_scale.value;
  for (const auto& [log_scale, limited] : {std::pair(9.0, 50.0), std::pair(-1.0, 1.0), std::pair(std::log(7), 7.0)}) {
    ten.log_scale.value.copy_from(scalar(log_scale));
    ten.limit();
    CHECK(std::abs(ten(Var(scalar(0))).value().item() - limited) < 1e-12);
  }
  CHECK(memory.shares_memory_with(ten.log_scale.value));
}

TEST_CASE("a learnable scale with cached features counts once for any number of micro-batches", "[S19]") {
  on_ranks({1, 3}, [](Communicator& comm) {
    const Tensor images = data_of(number(comm), {6, 3}, 1), texts = data_of(number(comm), {6, 3}, 2);
    Parameter tower("tower", data_of(0, {3, 3}, 3));
    LogitScale scale("scale", init);
    const auto gradients_of = [&](int64_t micro_batches) {
      Gradients gradients;
      const int64_t each = 6 / micro_batches;
      const auto encode = [&](int64_t i, Tape& tape) -> Features {
        const auto part = [&](const Tensor& all) { return tape.constant(all.slice(i * each, (i + 1) * each)); };
        return {l2_normalize(matmul(part(images), tape.watch(tower))), l2_normalize(part(texts))};
      };
      cached_backward(
          micro_batches, encode,
          [&](Tape&, const Features& all) { return clip_loss(all[0], all[1], scale(all[0]), {}, comm); }, gradients);
      return concat({reshape(gradients[tower], {9}), reshape(gradients[scale.log_scale], {1})}, 0);
    };
    expect_close(gradients_of(3), gradients_of(1));
  });
}

TEST_CASE("a loss over gathered keys costs one gather, one reduction of gradients and small collectives") {
  struct Cost {
    const char* loss;
    int forward, backward;
  };
  // Counts of samples; keys; per column the largest score, the sum and its gradient; or the other tower.
  const Cost costs[] = {{"nt_xent", 2, 1},
                        {"info_nce", 2, 1},
                        {"symmetric info_nce", 4, 2},
                        {"clip_loss in form 0", 4, 2},
                        {"clip_loss in form 1", 3, 2},
                        {"clip_loss in form 2", 3, 2},
                        {"siglip_loss", 2, 1}};
  run_ranks(3, [&](std::unique_ptr<Transport> transport) {
    int collectives = 0;
    Communicator comm(std::make_unique<CountedTransport>(std::move(transport), collectives));
    for (const Cost& cost : costs)
      for (const Named& c : all_losses()) {
        if (c.name != std::string(cost.loss) + ", way 0") continue;
        Tape tape;
        const Var a = tape.watch(data_of(number(comm), {2, 3}, 1)), b = tape.watch(data_of(number(comm), {2, 3}, 2));
        collectives = 0;
        const Var loss = c.loss(a, b, comm);
        expect(collectives == cost.forward, c.name + ": " + std::to_string(collectives) + " forward");
        tape.gradient(loss, {a, b});
        expect(collectives == cost.forward + cost.backward, c.name + ": " + std::to_string(collectives) + " in all");
      }
  });
}

TEST_CASE("contrastive losses refuse features that do not match, with their shapes") {
  run_ranks(1, [](Communicator& comm) {
    const Tensor a = data_of(0, {2, 3}), wider = data_of(0, {2, 4}), narrow = data_of(0, {2, 3}, 0, DType::f32);
    const Var one = scalar(1);
    expect_refusal([&] { nt_xent(a, wider, {}, comm); }, {"nt_xent: two views are (b, d) each", "(2, 3)", "(2, 4)"});
    expect_refusal([&] { dcl(a, narrow, {}, comm); }, {"dcl: two views", "f64", "f32"});
    expect_refusal([&] { info_nce(a, wider, {}, comm); }, {"info_nce: features of pairs", "(2, 4)"});
    expect_refusal([&] { info_nce(a, a, {.in_batch = false}, comm); }, {"info_nce: there is nothing to pick from"});
    expect_refusal([&] { info_nce(a, a, {.symmetric = true, .negatives = Var(a)}, comm); }, {"the symmetric form"});
    expect_refusal([&] { clip_loss(a, wider, one, {}, comm); }, {"clip_loss: features of pairs"});
    expect_refusal([&] { clip_loss(a, a, Tensor::full({1}, 1, DType::f64), {}, comm); },
                   {"clip_loss: the scale is a scalar of f64, not f64 (1)"});
    expect_refusal([&] { siglip_loss(a, a, one, Tensor::full({}, 1), {}, comm); },
                   {"siglip_loss: the bias is a scalar of f64, not f32 ()"});
    expect_refusal([&] { supcon(a, Tensor::arange(3), 3, {}, comm); }, {"supcon: features are (b, d)", "i64 (3)"});
    expect_refusal([&] { supcon(a, Tensor::from({2}, {0, 3}, DType::i64), 3, {}, comm); }, {"3"});
  });
}
