// SPDX-License-Identifier: Apache-2.0
// Contrastive losses with large scores, or of a batch that is nearly solved: the loss is then much smaller than the
// scores it is computed from.
#include "tests/support/on_ranks.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/contrastive/clip.h"
#include "weft/losses/contrastive/info_nce.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/losses/contrastive/siglip.h"

using namespace weft;

namespace test_sharp_scores {

using Values = std::vector<double>;
struct Named {
  std::string name;
  std::function<Var(const Var&, const Var&, double scale, Communicator&)> loss;
  std::function<Var(const Var&, const Var&, double scale)> whole = {};  // with all scores at once, on one process
};

Var constant(double value, const Var& like) { return replicated_constant(Tensor::full({}, value, like.dtype())); }
Var scores(const Var& a, const Var& b, double scale) { return matmul(a, b, Transpose::no, Transpose::yes) * scale; }
Var picked(const Var& scores) { return mean(cross_entropy(scores, Tensor::arange(scores.shape()[0]))); }

Var whole_info_nce(const Var& a, const Var& b, double scale) {
  return picked(scores(l2_normalize(a), l2_normalize(b), scale));
}
Var whole_clip(const Var& a, const Var& b, double scale) {
  const Var all = scores(a, b, scale);
  return (picked(all) + picked(transpose(all))) / 2;
}
Var whole_nt_xent(const Var& a, const Var& b, double scale) {
  const Var z = l2_normalize(concat({a, b}, 0));
  const int64_t n = z.shape()[0];
  Tensor targets({n}, DType::i64), itself = Tensor::zeros({n, n}, DType::u8);
  for (int64_t i = 0; i < n; ++i) {
    targets.mutate<int64_t>()[i] = (i + n / 2) % n;
    itself.mutate<uint8_t>()[i * n + i] = 1;
  }
  const Var nowhere = Tensor::full({n, n}, -INFINITY, z.dtype());
  return mean(cross_entropy(where(Var(itself), nowhere, scores(z, z, scale)), Var(targets)));
}

// Losses that pick one of many and are never negative.
std::vector<Named> picking() {
  std::vector<Named> all;
  for (const KeySchedule schedule :
       {KeySchedule{}, KeySchedule{KeySchedule::ring}, KeySchedule{KeySchedule::chunked, 3}}) {
    const std::string way = ", way " + std::to_string(static_cast<int>(schedule.kind));
    all.push_back({"nt_xent" + way,
                   [=](auto& a, auto& b, double scale, auto& comm) {
                     return nt_xent(a, b, {.temperature = 1 / scale, .schedule = schedule}, comm);
                   },
                   whole_nt_xent});
    all.push_back({"info_nce" + way,
                   [=](auto& a, auto& b, double scale, auto& comm) {
                     return info_nce(a, b, {.temperature = 1 / scale, .schedule = schedule}, comm);
                   },
                   whole_info_nce});
    all.push_back({"symmetric info_nce" + way, [=](auto& a, auto& b, double scale, auto& comm) {
                     const InfoNceOptions options{.temperature = 1 / scale, .schedule = schedule, .symmetric = true};
                     return info_nce(a, b, options, comm);
                   }});
    for (const ClipForm form : {ClipForm::one_tower, ClipForm::local_rows, ClipForm::replicated})
      all.push_back({"clip_loss in form " + std::to_string(static_cast<int>(form)) + way,
                     [=](auto& a, auto& b, double scale, auto& comm) {
                       return clip_loss(a, b, constant(scale, a), {form, schedule}, comm);
                     },
                     whole_clip});
  }
  all.push_back(
      {"info_nce against a bank", [](auto& a, auto& b, double scale, auto& comm) {
         const Var bank = replicated_constant(l2_normalize(Tensor::normal({9, 32}, {5}, 0, 1, a.dtype())).value());
         return info_nce(a, b, {.temperature = 1 / scale, .negatives = bank, .in_batch = false}, comm);
       }});
  return all;
}

// 40 pairs of unit vectors that differ by the given noise.
Tensor side(int which, double noise) {
  const Var base = Tensor::normal({40, 32}, {1}, 0, 1), other = Tensor::normal({40, 32}, {2}, 0, noise);
  return l2_normalize(which == 0 ? base : base + other).value();
}
// How many of them this rank has: the second of several ranks has none.
std::pair<int64_t, int64_t> own_pairs(Communicator& comm) {
  const int64_t parts = std::max(comm.size() - 1, 1), part = std::max(number(comm) - 1, 0);
  return number(comm) == 1 ? std::pair<int64_t, int64_t>(0, 0) : std::pair(40 * part / parts, 40 * (part + 1) / parts);
}

struct Graded {
  double loss;
  Values gradients = {};
};
template <class F> Graded graded(const F& loss, Tensor a, Tensor b) {
  Tape tape;
  const Var first = tape.watch(std::move(a)), second = tape.watch(std::move(b));
  const Var share = loss(first, second);
  Graded result{share.value().item()};
  for (const Var& g : tape.gradient(share, Var(Tensor::full({}, 1, share.dtype())), {first, second}))
    for (const double x : g.value().values()) result.gradients.push_back(x);
  return result;
}
Graded on_ranks_of(const Named& c, double noise, double scale, DType dtype, Communicator& comm) {
  const auto pairs = own_pairs(comm);
  const auto own = [&](int which) { return side(which, noise).to(dtype).slice(pairs.first, pairs.second); };
  const Graded mine = graded([&](auto& a, auto& b) { return c.loss(a, b, scale, comm); }, own(0), own(1));
  Graded all{sum_over_ranks(mine.loss, comm)};
  const int64_t half = (pairs.second - pairs.first) * 32;
  for (const int64_t from : {int64_t{0}, half}) {
    const Values part(mine.gradients.begin() + from, mine.gradients.begin() + from + half);
    const Tensor rows = Tensor::from({half}, part, DType::f64);
    for (const double x : comm.all_gather_v(rows, comm.rows_of(half)).values()) all.gradients.push_back(x);
  }
  return all;
}

// Relative to the root mean square of the expected values.
double apart(const Values& actual, const Values& expected) {
  double squares = 0, all = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    squares += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    all += expected[i] * expected[i];
  }
  return std::sqrt(squares / all);
}

TEST_CASE("a contrastive loss of a solved batch is zero with zero gradient and never negative, at any temperature") {
  for (const Named& c : picking())
    for (const DType dtype : {DType::f32, DType::f64})
      for (const double temperature : {1.0, 0.07, 0.03, 0.01, 1e-4}) {
        INFO(c.name << ", " << text(dtype) << ", temperature " << temperature);
        on_ranks({1, 2, 3, 5}, [&](Communicator& comm) {
          const Graded found = on_ranks_of(c, 0, 1 / temperature, dtype, comm);
          expect(found.loss >= 0, "the loss is " + text(found.loss));
          if (temperature > 0.01) return;
          expect(found.loss <= 1e-15, "the loss is " + text(found.loss));
          for (const double g : found.gradients) expect(std::abs(g) <= 1e-15, "a gradient is " + text(g));
        });
      }
}

TEST_CASE("contrastive gradients are as exact as with all scores in memory, for large scores and small losses") {
  for (const Named& c : picking()) {
    if (!c.whole) continue;
    for (const double scale : {14.0, 30.0, 100.0, 9e3})
      for (const double noise : {0.01, 0.1, 1.0, 100.0}) {
        const auto whole = [&](DType dtype) {
          return graded([&](auto& a, auto& b) { return c.whole(a, b, scale); }, side(0, noise).to(dtype),
                        side(1, noise).to(dtype));
        };
        const Graded truth = whole(DType::f64), plain = whole(DType::f32);
        if (truth.loss < 1e-9) continue;  // f64 rounds it
        INFO(c.name << ", scale " << scale << ", noise " << noise << ", loss " << truth.loss);
        on_ranks({1, 3}, [&](Communicator& comm) {
          const Graded found = on_ranks_of(c, noise, scale, DType::f32, comm);
          const double ours = apart(found.gradients, truth.gradients), theirs = apart(plain.gradients, truth.gradients);
          expect(ours <= 1.1 * theirs + 1e-7, text(ours) + " off, not " + text(theirs));
          const double allowed = std::abs(plain.loss - truth.loss) + 1e-6 * truth.loss;
          expect(std::abs(found.loss - truth.loss) <= allowed, "the loss is " + text(found.loss));
        });
      }
  }
}

TEST_CASE("SigLIP loses no digit for pairs that surely match") {
  for (const double scale : {10.0, 30.0, 100.0}) {
    const Named siglip{"", [](auto& a, auto& b, double s, auto& comm) {
                         return siglip_loss(a, b, constant(s, a), constant(-0.7 * s, a), {}, comm);
                       }};
    on_ranks({1, 3}, [&](Communicator& comm) {
      const Graded narrow = on_ranks_of(siglip, 0.1, scale, DType::f32, comm),
                   truth = on_ranks_of(siglip, 0.1, scale, DType::f64, comm);
      expect(std::abs(narrow.loss - truth.loss) <= 1e-5 * truth.loss,
             text(narrow.loss) + " for a loss of " + text(truth.loss));
      const double off = apart(narrow.gradients, truth.gradients);
      expect(off <= 1e-5, "gradients are off by " + text(off));
    });
  }
}

}  // namespace test_sharp_scores
