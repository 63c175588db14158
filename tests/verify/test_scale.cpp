// SPDX-License-Identifier: Apache-2.0
// Gradients of a model that the verifier does not know, by differences of its objective: a linear encoder whose
// features are gathered, a temperature, and softmax, computed by Weft's engine.
#include <fstream>
#include <numeric>

#include "tests/support/on_ranks.h"
#include "tests/support/scratch_folder.h"
#include "tools/weft/dump/matrix_of.h"
#include "tools/weft/slopes/slopes.h"
#include "tools/weft/verdict/print.h"
#include "weft/collectives/verbs.h"
#include "weft/data/files/safetensors.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;
using verify::Outcome;
using verify::Verdict;

namespace test_scale {

constexpr double usual_step = 1e-3;
constexpr int64_t directions = 3;

struct Point {
  Tensor encoder, temperature;  // (5, 3) and one number
};

// What the loss of one rank says of the encoder, through its own features as queries and through gathered ones as keys.
struct LocalGradients {
  double loss;
  Tensor queries, keys, temperature;
};

struct Model {
  Rows rows;
  uint64_t seed = 1;
  DType dtype = DType::f64;  // that everything is computed in

  int ranks() const { return static_cast<int>(rows.size()); }
  double samples() const { return static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0})); }
  Tensor batch(int r) const {
    return Tensor::uniform({rows[static_cast<size_t>(r)], 5}, {seed, static_cast<uint64_t>(r)}, -1, 1).to(dtype);
  }
  Point start() const { return {Tensor::uniform({5, 3}, {seed, 100}, -1, 1).to(dtype), Tensor::full({}, 1.5, dtype)}; }

  // The sum over this rank's rows of the cross entropies with the features of all ranks, times `weight`.
  LocalGradients of_rank(int r, const Point& at, double weight) const {
    const int64_t mine = rows[static_cast<size_t>(r)];
    const auto zeros = [&](const Tensor& x) { return Tensor::zeros(x.shape(), dtype); };
    if (mine == 0) return {0, zeros(at.encoder), zeros(at.encoder), zeros(at.temperature)};
    Tape tape;
    const Var own = tape.watch(at.encoder), others = tape.watch(at.encoder), temperature = tape.watch(at.temperature);
    std::vector<Var> gathered;
    for (int q = 0; q < ranks(); ++q) gathered.push_back(matmul(tape.constant(batch(q)), others));
    const Var queries = matmul(tape.constant(batch(r)), own);
    const Var products = matmul(queries, concat(gathered, 0), Transpose::no, Transpose::yes);
    const Var scales = reshape(repeat(temperature, 0, products.size()), products.shape());
    const int64_t first = std::accumulate(rows.begin(), rows.begin() + r, int64_t{0});
    Tensor labels = Tensor::zeros({mine}, DType::i64);
    for (int64_t i = 0; i < mine; ++i) labels.mutate<int64_t>()[i] = first + i;
    const Var loss = sum(cross_entropy(products * scales, labels)) * weight;
    const std::vector<Var> g = tape.gradient(loss, {own, others, temperature});
    return {loss.value().item(), g[0].value(), g[1].value(), g[2].value()};
  }
  // In a framework whose reducer averages.
  double right_weight() const { return ranks() / samples(); }
};

// A dump: rank r's loss is its rows' sum times weights[r]; `reduce` makes gradients of what all ranks have.
struct Planted {
  Model model;
  std::vector<double> weights;
  std::function<std::vector<Tensor>(const std::vector<LocalGradients>&, int r)> reduce;
  bool objective = true;
  int micro_batches = 2;
  double step = usual_step;
  DType gradients = DType::f64;

  Planted(Model of, decltype(reduce) how) : model(std::move(of)), reduce(std::move(how)) {
    weights.assign(static_cast<size_t>(model.ranks()), model.right_weight());
  }

  // Of every rank, as a framework would write them.
  std::vector<std::vector<NamedTensor>> tensors() const {
    std::vector<std::vector<NamedTensor>> all(weights.size());
    std::vector<LocalGradients> local;
    Model of_gradients = model;
    of_gradients.dtype = gradients;
    for (size_t r = 0; r < all.size(); ++r)
      local.push_back(of_gradients.of_rank(static_cast<int>(r), of_gradients.start(), weights[r]));
    for (size_t r = 0; r < all.size(); ++r) {
      const std::vector<Tensor> reduced = reduce(local, static_cast<int>(r));
      all[r] = {{"reduced/encoder", reduced[0]}, {"reduced/temperature", reduced[1]}};
    }
    const auto [at_rest, losses_at_rest] = values(model.start());
    add(all, "", at_rest, losses_at_rest, {});
    for (const char* name : {"encoder", "temperature"}) add_moved(all, name);
    return all;
  }

  verify::Dump dump() const {
    verify::Dump dump;
    dump.ranks = model.ranks();
    dump.micro_batches = micro_batches;
    dump.rows.assign(model.rows.begin(), model.rows.end());
    verify::ScaleReader reader(step, std::vector<std::string>(weights.size(), "a file"));
    const auto all = tensors();
    for (const char* name : {"encoder", "temperature"}) {
      verify::ParameterEvidence& p = dump.parameters.emplace_back();
      p.name = name;
      p.precision.epsilon = gradients == DType::f32 ? 0x1p-23 : 0x1p-52;
    }
    for (size_t r = 0; r < all.size(); ++r)
      for (const NamedTensor& each : all[r]) {
        const verify::Role role = verify::role_by_name(each.name, nullptr);
        if (verify::ScaleReader::reads(role.kind))
          reader.place(role, each.tensor, r);
        else
          dump.parameters[role.of == "encoder" ? 0 : 1].reduced.push_back(
              verify::matrix_of(each.tensor.reshape({1, each.tensor.size()})));
      }
    dump.scale = reader.finish(dump.parameters);
    dump.parameters.clear();
    return dump;
  }

 private:
  // The objective, and the losses of all ranks.
  std::pair<double, std::vector<double>> values(const Point& at) const {
    double objective = 0;
    std::vector<double> losses;
    for (int r = 0; r < model.ranks(); ++r) {
      const double sum = model.of_rank(r, at, 1).loss;
      objective += sum / model.samples();
      losses.push_back(weights[static_cast<size_t>(r)] * sum);
    }
    return {objective, losses};
  }
  void add(std::vector<std::vector<NamedTensor>>& all, const std::string& of, const Tensor& value,
           const std::vector<Tensor>& losses) const {
    for (size_t r = 0; r < all.size(); ++r) all[r].push_back({"rank_loss" + of, losses[r]});
    if (objective) all[0].push_back({"objective" + of, value});
  }
  void add(std::vector<std::vector<NamedTensor>>& all, const std::string& of, double value,
           const std::vector<double>& losses, const Shape& shape) const {
    std::vector<Tensor> tensors;
    for (const double loss : losses) tensors.push_back(Tensor::full(shape, loss, DType::f64));
    add(all, of, Tensor::full(shape, value, DType::f64), tensors);
  }
  void add_moved(std::vector<std::vector<NamedTensor>>& all, const std::string& name) const {
    const bool encoder = name == "encoder";
    const Tensor before = encoder ? model.start().encoder : model.start().temperature;
    const Tensor along = Tensor::uniform({directions, before.size()}, {model.seed, 200}, -1, 1, DType::f64);
    Tensor value = Tensor::zeros({directions, 4}, DType::f64);
    std::vector<Tensor> losses(all.size());
    for (Tensor& each : losses) each = Tensor::zeros({directions, 4}, DType::f64);
    for (int64_t k = 0; k < directions; ++k)
      for (const auto& [column, by] : {std::pair(0, -step), {1, -step / 2}, {2, step / 2}, {3, step}}) {
        std::vector<double> moved = before.values();
        for (size_t i = 0; i < moved.size(); ++i)
          moved[i] += by * along.data<double>()[k * before.size() + static_cast<int64_t>(i)];
        Point point = model.start();
        (encoder ? point.encoder : point.temperature) = Tensor::from(before.shape(), moved, model.dtype);
        const auto [at, of_ranks] = values(point);
        value.mutate<double>()[4 * k + column] = at;
        for (size_t r = 0; r < losses.size(); ++r) losses[r].mutate<double>()[4 * k + column] = of_ranks[r];
      }
    add(all, "/" + name, value, losses);
    all[0].push_back({"direction/" + name, along});
  }
};

// What a reducer that averages makes of all ranks' gradients, each part of them times a factor.
struct Factors {
  double queries = 1, keys = 1, temperature = 1;
};
Tensor total_of(const std::vector<LocalGradients>& all, Tensor LocalGradients::*part, double by) {
  Var sum = all[0].*part;
  for (size_t r = 1; r < all.size(); ++r) sum = sum + all[r].*part;
  return (sum * (by / static_cast<double>(all.size()))).value();
}
std::function<std::vector<Tensor>(const std::vector<LocalGradients>&, int)> averaged(Factors by) {
  return [by](const std::vector<LocalGradients>& all, int) -> std::vector<Tensor> {
    return {(Var(total_of(all, &LocalGradients::queries, by.queries)) + total_of(all, &LocalGradients::keys, by.keys))
                .value(),
            total_of(all, &LocalGradients::temperature, by.temperature)};
  };
}

Rows uneven(int ranks) {
  Rows rows = {4, 7, 5, 3, 8};
  rows.resize(static_cast<size_t>(ranks));
  return rows;
}

// The signature of the first verdict that is wrong, or the outcome of all.
std::string found(const verify::Dump& dump) {
  const std::vector<Verdict> all = verify::verdicts(dump);
  for (const Verdict& each : all)
    if (each.outcome == Outcome::wrong) return each.best ? each.best->signature->id : "unknown";
  return verify::name(verify::overall(all));
}

std::string found(const Model& model, const Factors& by) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Planted planted(model, averaged(by));
    planted.gradients = dtype;
    const std::string here = found(planted.dump());
    if (dtype == DType::f64) return here;
    Planted exact(model, averaged(by));
    CHECK(here == found(exact.dump()));
  }
  return "";
}

std::string said(const verify::Dump& dump) { return verify::text_of(verify::verdicts(dump), dump); }

// 1 + 2t - 3t^2 + t^3 at -2, -1, 1 and 2, and nothing along another direction.
verify::MovedValues cubic() {
  verify::MovedValues values{1, verify::Matrix::Zero(2, 4)};
  values.moved.row(0) << -23, -5, 1, 1;
  values.moved.row(1).setOnes();
  return values;
}

TEST_CASE("slopes are those of the five-point rule, which is off by rounding and at most by its correction") {
  const verify::Slopes found = verify::slopes_of(cubic(), 2, 0.5);
  CHECK(found.along(0) == Approx(2));
  CHECK(found.along(1) == 0);
  CHECK(found.truncation == Approx(std::sqrt(2) * 1));  // between the differences 6 and 3
  CHECK(found.rounding == Approx(verify::limit * std::sqrt(2) * 0.5 * std::sqrt(130) / 12));
  CHECK(found.tolerance() == found.rounding + found.truncation);
}

TEST_CASE("the noise of a value is what is left of the fourth differences, which are zero for a cubic function") {
  const auto noise_if = [](auto change) {
    verify::MovedValues values = cubic();
    change(values);
    return verify::noise_of(values);
  };
  CHECK(noise_if([](auto&) {}) == 0);
  const double whole = std::sqrt(1 + 16 + 36 + 16 + 1);
  for (const auto& [column, weight] : {std::pair(0, 1), {1, 4}, {2, 4}, {3, 1}})
    CHECK(noise_if([at = column](auto& values) { values.moved(1, at) += 0.5; }) == Approx(0.5 * weight / whole));
  CHECK(noise_if([](auto& values) { values.at_rest += 0.5; }) == Approx(3 / whole));
}

TEST_CASE("slopes of a gradient are off by half of its digits in each of their terms") {
  verify::Matrix gradient(1, 2), directions(2, 2);
  gradient << 3, -2;
  directions << 1, 2, 0, 4;
  const verify::Slopes found = verify::slopes_of(gradient, directions, 1e-6);
  CHECK(found.along(0) == -1);
  CHECK(found.along(1) == -8);
  CHECK(found.tolerance() == Approx(1e-3 * std::sqrt(9 + 16 + 64)));
}

TEST_CASE("factors of gradients are named by the mistake that makes them, in f64 and f32") {
  for (const int ranks : {3, 5}) {
    const double w = ranks, a = 2;
    const Model model{uneven(ranks)};
    const auto all = [](double factor) { return Factors{factor, factor, factor}; };
    const auto encoder = [](double factor) { return Factors{factor, factor, 1}; };
    INFO(ranks << " ranks");
    CHECK(found(model, {}) == "correct");
    CHECK(found(model, all(w)) == "S8");
    CHECK(found(model, all(1 / w)) == "S9");
    CHECK(found(model, encoder(1 / w)) == "S3");
    CHECK(found(model, encoder(w)) == "S7");
    CHECK(found(model, all(a)) == "S16");
    CHECK(found(model, all(1 / a)) == "S16");
    CHECK(found(model, encoder(0)) == "S18");
    CHECK(found(model, {1, 1, a}) == "S19");
    CHECK(found(model, encoder(7)) == "S30");
    CHECK(found(model, encoder(1.0 / 15)) == "S33");
    CHECK(found(model, all(1 / model.samples())) == "S33");
    CHECK(found(model, all(model.samples() / (w * 8))) == (ranks == 5 ? "S13" : "unknown"));
    CHECK(found(model, {1, 0, 1}) == "unknown");      // S1
    CHECK(found(model, {1, 1 / w, 1}) == "unknown");  // S6
    CHECK(found(model, all(1.01)) == "unknown");
  }
}

TEST_CASE("what is said of a factor that several mistakes make, and of one that none makes") {
  const Model model{uneven(3)};
  const std::string reinserted = said(Planted(model, averaged({1.0 / 3, 1.0 / 3, 1})).dump());
  for (const char* part :
       {"the slopes along 'encoder': wrong: signature S3: own slot re-inserted", "here the same numbers as S30",
        "its gradient is 0.333333 times what it should be: one over the number of ranks",
        "the slopes along 'temperature': correct", "the differences tell factors to 1e-", "verdict: wrong"})
    CHECK_THAT(reinserted, Catch::Matchers::Contains(part));
  CHECK_THAT(said(Planted(model, averaged({1, 0, 1})).dump()),
             Catch::Matchers::Contains("'encoder': wrong, unknown cause") &&
                 Catch::Matchers::Contains("its gradient is no multiple of what it should be") &&
                 Catch::Matchers::Contains("likely no gradient through a gather"));
  CHECK_THAT(said(Planted(model, averaged({0, 0, 1})).dump()),
             Catch::Matchers::Contains("signature S18") &&
                 Catch::Matchers::Contains("here the same numbers as S1 (of a loss that all ranks hold)"));
  CHECK_THAT(said(Planted(model, averaged({7, 7, 1})).dump()),
             Catch::Matchers::Contains("its gradient is 7 times what it should be"));
}

TEST_CASE("differences see through detached values, so what these change cannot be told, unless they were held") {
  const Model model{uneven(3)};
  const auto detached = [&](const Factors& by, bool held) {
    verify::Dump dump = Planted(model, averaged(by)).dump();
    dump.scale->detached = {{"vq.py:31"}, held};
    return dump;
  };
  const Factors stopped{1, 0, 1}, reinserted{1.0 / 3, 1.0 / 3, 1};
  for (const Factors& by : {stopped, reinserted}) {
    CHECK(found(detached(by, false)) == "cannot tell");
    CHECK(found(detached(by, true)) == found(Planted(model, averaged(by)).dump()));
  }
  CHECK(found(detached({}, false)) == "correct");
  CHECK_THAT(said(detached(stopped, false)), Catch::Matchers::Contains("autograd stops where values are detached") &&
                                                 Catch::Matchers::Contains("values are detached at vq.py:31\n"));
  CHECK_THAT(said(detached({}, true)), Catch::Matchers::Contains("detached at vq.py:31, and held in the differences"));
  Planted differing(model, averaged({}));
  differing.reduce = [](const std::vector<LocalGradients>& all, int r) -> std::vector<Tensor> {
    return {all[static_cast<size_t>(r)].queries, all[static_cast<size_t>(r)].temperature};
  };
  verify::Dump dump = differing.dump();
  dump.scale->detached = {{"vq.py:31"}, false};
  CHECK(verify::overall(verify::verdicts(dump)) == Outcome::wrong);
}

TEST_CASE("a wrong factor of the loss is told from one of the gradients, where the objective is dumped") {
  for (const int ranks : {3, 5}) {
    const Model model{uneven(ranks)};
    const auto of_loss = [&](auto weight, bool objective = true) {
      Planted planted(model, averaged({}));
      for (size_t r = 0; r < planted.weights.size(); ++r)
        planted.weights[r] = weight(static_cast<double>(model.rows[r]));
      planted.objective = objective;
      return planted.dump();
    };
    const double w = ranks, right = model.right_weight();
    CHECK(found(of_loss([&](double) { return right * w; })) == "S8");
    CHECK(found(of_loss([&](double) { return right / w; })) == "S9");
    CHECK(found(of_loss([&](double rows) { return 1 / rows; })) == "S12");
    CHECK(found(of_loss([&](double) { return 1.0 / 8; })) == (ranks == 5 ? "S13" : "unknown"));
    CHECK(found(of_loss([&](double) { return right; })) == "correct");
    const verify::Dump without = of_loss([&](double rows) { return 1 / rows; }, false);
    CHECK(found(without) == "correct");
    CHECK_FALSE(verify::verdicts(without)[0].blind_to.empty());
    CHECK_THAT(said(of_loss([&](double rows) { return 1 / rows; })),
               Catch::Matchers::Contains("the slope of the losses is no multiple of what it should be"));
  }
}

TEST_CASE("gradients that differ between ranks are named by what their mean and sum are") {
  for (const int ranks : {3, 5}) {
    const double w = ranks;
    const Model model{uneven(ranks)};
    const auto kept = [&](double by) {  // each rank keeps its own gradient of the encoder
      Planted planted(model, [by](const std::vector<LocalGradients>& all, int r) -> std::vector<Tensor> {
        const LocalGradients& mine = all[static_cast<size_t>(r)];
        return {((Var(mine.queries) + mine.keys) * by).value(), total_of(all, &LocalGradients::temperature, 1)};
      });
      planted.micro_batches = 1;
      return planted.dump();
    };
    CHECK(found(kept(1)) == "S22");
    CHECK(found(kept(1 / w)) == "S29");
    CHECK(found(kept(5.5)) == "unknown");
    CHECK_THAT(said(kept(1)), Catch::Matchers::Contains("the ranks have different gradients") &&
                                  !Catch::Matchers::Contains("here the same numbers as"));
    const Planted forgetful(model, [](const std::vector<LocalGradients>& all, int r) {  // rank 1 has none
      const double by = r == 1 ? 0 : 1;
      return averaged({by, by, 1})(all, r);
    });
    CHECK(verify::verdicts(forgetful.dump())[0].table.back().cosine == 0);  // of the worst rank
  }
}

TEST_CASE("500 random correct gradients are never called wrong, and called correct where values are f64") {
  int not_correct = 0, wrong = 0, told = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    Rows rows;
    for (uint64_t r = 0; r < 1 + i % 5; ++r) rows.push_back(static_cast<int64_t>((i * 7 + r * 5) % 6 + (r == 0)));
    Planted planted({rows, i}, averaged({}));
    planted.gradients = i % 2 ? DType::f32 : DType::f64;
    not_correct += found(planted.dump()) != "correct";
    planted.model.dtype = planted.gradients = DType::f32;
    planted.step = std::array{1e-3, 1e-2, 0.1, 1.0}[i % 4];
    const std::string verdict = found(planted.dump());
    wrong += verdict != "correct" && verdict != "cannot tell";
    told += verdict == "correct";
  }
  CHECK(not_correct == 0);
  CHECK(wrong == 0);
  CHECK(told > 0);
}

TEST_CASE("differences that are too inexact cannot tell, and say what to dump instead") {
  Planted planted({uneven(3)}, averaged({}));
  planted.model.dtype = DType::f32;
  CHECK_THAT(said(planted.dump()), Catch::Matchers::Contains("evaluate the loss and its model in f64") &&
                                       Catch::Matchers::Contains("verdict: cannot tell"));
  planted.model.dtype = DType::f64;
  planted.step = 3;
  CHECK_THAT(said(planted.dump()), Catch::Matchers::Contains("take smaller steps"));
}

TEST_CASE("malformed sections are refused in one sentence") {
  const ScratchFolder scratch;
  const std::string section = R"("scale": {"step": 0.001})";
  const auto refusal = [&](const std::string& manifest, auto change) -> std::string {
    auto all = Planted({uneven(3)}, averaged({})).tensors();
    change(all);
    for (size_t r = 0; r < all.size(); ++r)
      write_safetensors(scratch.path / ("rank" + std::to_string(r) + ".safetensors"), all[r], {});
    std::ofstream(scratch.path / "manifest.json") << R"({"weft_manifest": 1, )" << manifest << "}";
    try {
      return said(verify::read_dump(scratch.path));
    } catch (const Error& error) {
      return error.what();
    }
  };
  const auto replace = [](size_t rank, const std::string& name, const Tensor& by) {
    return [=](auto& all) {
      std::erase_if(all[rank], [&](const NamedTensor& each) { return each.name == name; });
      if (by.dtype() != DType::i64) all[rank].push_back({name, by});
    };
  };
  const auto nothing = [](auto&) {};
  const Tensor removed = Tensor::zeros({1}, DType::i64);
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f64); };
  const auto ones = [](const Shape& shape) { return Tensor::full(shape, 1, DType::f64); };
  CHECK_THAT(refusal(section, nothing), Catch::Matchers::Contains("verdict: correct"));
  CHECK_THAT(refusal(R"("scale": {"step": 0.001, "detached": ["vq.py:31"], "held": true})", nothing),
             Catch::Matchers::Contains("verdict: correct") && Catch::Matchers::Contains("at vq.py:31, and held"));
  const std::tuple<std::string, std::string> sections[] = {
      {R"("scale": {"step": 0})", "the step is between 1e-12 and 1e12, not 0"},
      {R"("scale": {})", "'step' not found"},
      {R"("scale": {"step": 0.1}, "micro_batches": 0)",
       "the number of micro-batches is a whole number from 1 to 65536, not 0"},
      {R"("reducer": "mean")", "needs a section \"scale\""}};
  for (const auto& [manifest, words] : sections)
    CHECK_THAT(refusal(manifest, nothing), Catch::Matchers::Contains(words));
  const auto check = [&](size_t rank, const char* name, const Tensor& by, const char* words) {
    INFO(name);
    CHECK_THAT(refusal(section, replace(rank, name, by)), Catch::Matchers::Contains(words));
  };
  check(0, "direction/encoder", ones({2, 15}), "along 2 directions, but at least 3 are needed");
  check(0, "direction/encoder", ones({3, 15}), "moved along parallel directions");
  check(0, "direction/encoder", zeros({3, 15}), "a direction that is zero");
  check(0, "direction/encoder", Tensor::uniform({3, 14}, {1}, -1, 1, DType::f64), "15 elements, its directions 14");
  check(0, "direction/encoder", zeros({}), "the directions of 'encoder' are empty");
  check(1, "direction/encoder", ones({3, 15}), "are not those of an earlier rank");
  check(1, "direction/encoder", ones({15, 3}), "are not those of an earlier rank");
  check(0, "objective/encoder", zeros({3, 5}), "of values at -e, -e/2, e/2 and e");
  check(0, "objective/encoder", zeros({4, 4}), "along 3 directions, but there are values of 4");
  check(0, "objective", removed, "missing where nothing is moved");
  check(0, "objective/encoder", removed, "missing where 'encoder' is moved");
  check(2, "rank_loss/encoder", removed, "missing where 'encoder' is moved");
  check(1, "objective", ones({}), "the replicas have diverged (S26)");
  check(1, "objective/encoder", ones({3, 4}), "the replicas have diverged (S26)");
  check(1, "objective/encoder", ones({4, 4}), "the replicas have diverged (S26)");
  check(0, "objective@half", ones({}), "the terms of the objective add up to 1, not to ");
  check(0, "objective/encoder@half", zeros({3, 4}), "there is no 'objective@half', where nothing is moved");
  check(1, "reduced/encoder", removed, "there is no 'reduced/encoder'");
  check(2, "rank_loss", Tensor::full({}, NAN, DType::f64), "numbers that are not finite");
  check(2, "reduced/temperature", Tensor::full({}, NAN, DType::f64), "verdict: wrong");
}

}  // namespace test_scale
