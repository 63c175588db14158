// SPDX-License-Identifier: Apache-2.0
// Regression metrics that can be losses: their values and gradients.
#include "tests/support/uneven_rows.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/metrics/regression_metrics.h"

using namespace weft;

namespace test_regression_metrics {

// The metrics as TorchMetrics defines them, with deviations about a mean that is subtracted first.
Var deviations(const Var& x) { return x - repeat(mean(x, 0), 0, x.shape()[0]); }
Var correlation(const Var& a, const Var& b) {
  return sum(deviations(a) * deviations(b), 0) / sqrt(sum(square(deviations(a)), 0) * sum(square(deviations(b)), 0));
}

TEST_CASE("regression metrics have the values that TorchMetrics documents") {
  on_ranks({1, 2, 3, 5}, [](Communicator& comm) {
    const auto mine = [&](const Tensor& all) {  // few samples, unevenly; some ranks have none
      const int64_t n = all.shape()[0], me = number(comm), ranks = comm.size();
      return all.slice(n * me / ranks, n * (me + 1) / ranks);
    };
    const auto expect_near = [](const Var& actual, std::initializer_list<double> expected, Site site = Site::here()) {
      const Var off = abs(reshape(actual, {actual.size()}) - Var(row_of(expected)));
      expect(max(off).value().item() <= 5e-5, text(actual.value()), site);
    };
    const Tensor predictions = row_of({2.5, 0, 2, 8}), targets = row_of({3, -0.5, 2, 7});
    expect_near(mean_squared_error(mine(row_of({3, 5, 2.5, 7})), mine(row_of({2.5, 5, 4, 8})), comm), {0.8750});
    expect_near(root_mean_squared_error(mine(row_of({0, 1, 2, 3})), mine(row_of({0, 1, 2, 2})), comm), {0.5});
    expect_near(pearson_correlation(mine(predictions), mine(targets), comm), {0.9849});
    expect_near(r2_score(mine(predictions), mine(targets), comm), {0.9486});
    const Tensor pairs = Tensor::from({3, 2}, {0, 2, -1, 2, 8, -5}, DType::f64),
                 others = Tensor::from({3, 2}, {0.5, 1, -1, 1, 7, -6}, DType::f64);
    expect_near(r2_score(mine(pairs), mine(others), comm), {0.9654, 0.9082});
    const Tensor a = Tensor::from({2, 4}, {1, 2, 3, 4, 1, 2, 3, 4}, DType::f64),
                 b = Tensor::from({2, 4}, {1, 2, 3, 4, -1, -2, -3, -4}, DType::f64);
    expect_near(cosine_similarity(mine(a.slice(0, 1)), mine(b.slice(0, 1)), Over::mean, comm), {1});
    expect_near(cosine_similarity(mine(a), mine(b), Over::sum, comm), {0});
  });
}

TEST_CASE("a regression metric on shards of 1, 2 and 4 samples trains like one process, alone or with another loss") {
  on_ranks({3}, [](Communicator& comm) {
    const int64_t first = std::array{0, 1, 3}[number(comm)], count = std::array{1, 2, 4}[number(comm)];
    const Tensor x = data_of(0, {7}, 1), y = data_of(0, {7}, 2), weight = scalar(0.7);
    for (const bool beside : {false, true}) {
      Tape one, tape;
      declare_group(tape, comm);
      const Var w = one.watch(weight), shared = with_placement(tape.watch(weight), comm, Placement::replicated);
      const auto predicted = [](const Var& v, const Var& inputs) { return inputs * repeat(v, 0, inputs.size()); };
      const Var all = predicted(w, x), mine = predicted(shared, tape.constant(x.slice(first, first + count)));
      const Var targets = tape.constant(y.slice(first, first + count));
      Var expected = sqrt(mean(square(all - y))) - correlation(all + square(all), y);
      Var loss = root_mean_squared_error(mine, targets, comm) - pearson_correlation(mine + square(mine), targets, comm);
      loss = keep_on(loss, {0}, comm);
      if (beside) {
        expected = expected + sum(exp(all)) / 7.0;
        loss = loss + as_partial(sum(exp(mine)) / 7.0, comm);
      }
      expect_close(comm.all_reduce(loss.value()), expected);
      expect_close(comm.all_reduce(tape.gradient(loss, {shared})[0].value()), one.gradient(expected, {w})[0]);
    }
  });
}

TEST_CASE("correlations lose no digit if the mean is 1e6 standard deviations") {
  on_ranks({1, 2, 3, 5}, [](Communicator& comm) {
    const auto moved = [](const Tensor& x) { return affine(x.to(DType::f32).to(DType::f64), 1, 0x1p20).value(); };
    const int me = number(comm);
    const Tensor a = part(me, {2}), b = part(me, {2}, 1), all_a = whole(comm, {2}), all_b = whole(comm, {2}, 1);
    const auto same = [&](const Var& actual, const Var& expected) {
      expect(max(abs(actual - expected)).value().item() < 1e-8, text(actual.value()) + text(expected.value()));
    };
    same(pearson_correlation(moved(a), moved(b), comm), correlation(moved(all_a), moved(all_b)));
    same(r2_score(moved(a), moved(b), comm),
         1 - mean(square(Var(moved(all_a)) - moved(all_b)), 0) / variance(moved(all_b), 0));
  });
}

using Metric = std::function<Var(const Var&, const Var&, Communicator&)>;
struct Graded {
  Tensor value, predictions, targets;  // gradients of the outputs' mean over all samples
};
// Computes a metric of `whole` on one process, or of this rank's part.
template <class F> Graded graded(const F& metric, const Tensor& predictions, const Tensor& targets) {
  Tape tape;
  const Var a = tape.watch(predictions), b = tape.watch(targets);
  const Var y = metric(a, b);
  const auto g = tape.gradient(mean(y), Var(Tensor::full({}, 1, y.dtype())), {a, b});
  return {y.value(), g[0].value(), g[1].value()};
}
double furthest(const Tensor& actual, const Tensor& expected) {
  const Var a = actual.to(DType::f64), e = expected.to(DType::f64);
  return max(abs(a - e)).value().item() / max(abs(e)).value().item();
}

struct OfDeviations {
  const char* name;
  Metric metric;
  std::function<Var(const Var&, const Var&)> plain;
};
const std::vector<OfDeviations> of_deviations = {
    {"pearson_correlation", [](auto& a, auto& b, auto& comm) { return pearson_correlation(a, b, comm); }, correlation},
    {"r2_score", [](auto& a, auto& b, auto& comm) { return r2_score(a, b, comm); },
     [](auto& a, auto& b) { return 1 - mean(square(a - b), 0) / variance(b, 0); }},
    {"explained_variance", [](auto& a, auto& b, auto& comm) { return explained_variance(a, b, comm); },
     [](auto& a, auto& b) { return 1 - variance(a - b, 0) / variance(b, 0); }},
};

// How far value and gradients are from one process in f64 with the mean subtracted exactly. Samples of each rank are
// near `shift` plus a small offset of that rank.
struct Off {
  double value = 0, gradient = 0;
};
Off off_by_shift(const OfDeviations& m, DType dtype, double shift, Communicator& comm) {
  const auto shifted = [&](const Tensor& x, int rank) {
    return affine(x.to(DType::bf16).to(DType::f64), 1, shift + 0.125 * rank).value().to(dtype).to(DType::f64);
  };
  Vars parts[2];
  for (int r = 0; r < comm.size(); ++r)
    for (const int use : {0, 1}) parts[use].push_back(shifted(part(r, {2}, use), r));
  const Var a = concat(parts[0], 0) - shift, b = concat(parts[1], 0) - shift;
  const Graded truth = graded(m.plain, a.value(), b.value());
  const auto me = static_cast<size_t>(number(comm));
  const Graded found = graded([&](auto& x, auto& y) { return m.metric(x, y, comm); }, parts[0][me].value().to(dtype),
                              parts[1][me].value().to(dtype));
  const Rows rows = comm.rows_of(rows_on(number(comm)));
  // The gradient of a Replicated value is the sum of all ranks' cotangents; here each is one.
  const double ranks = comm.size();
  const auto all = [&](const Tensor& g) { return (Var(comm.all_gather_v(g.to(DType::f64), rows)) / ranks).value(); };
  return {furthest(found.value, truth.value),
          std::max(furthest(all(found.predictions), truth.predictions), furthest(all(found.targets), truth.targets))};
}

TEST_CASE("correlations and explained variance lose no digit to a large mean, in value and gradients") {
  for (const OfDeviations& m : of_deviations)
    on_ranks({1, 2, 3, 5, 8}, [&](Communicator& comm) {
      const Off wide = off_by_shift(m, DType::f64, 0x1p27, comm);
      expect(
          wide.value <= 4e-15 && wide.gradient <= 4e-15,
          std::string(m.name) + " at 2^27 is off by " + text(wide.value) + ", its gradient by " + text(wide.gradient));
      for (const double shift : {100.0, 200.0, 300.0}) {
        const Off narrow = off_by_shift(m, DType::f32, shift, comm);
        expect(narrow.value <= 1e-6 && narrow.gradient <= 1e-6, std::string(m.name) + " in f32 at " + text(shift) +
                                                                    " is off by " + text(narrow.value) +
                                                                    ", its gradient by " + text(narrow.gradient));
      }
    });
}

TEST_CASE("the root mean squared error of a perfect prediction has a gradient of zero") {
  on_ranks({1, 2, 3, 5}, [](Communicator& comm) {
    const Tensor x = part(number(comm), {2});
    Tensor y = x.clone();
    if (y.size() > 0) y.mutate<double>()[0] += 0.5;  // in the first output
    const Graded found = graded([&](auto& a, auto& b) { return root_mean_squared_error(a, b, comm); }, x, y);
    expect(found.value.values()[0] > 0 && found.value.values()[1] == 0, text(found.value));
    const std::vector<double> g = found.predictions.values();
    for (size_t i = 0; i < g.size(); ++i) expect(i == 0 ? g[i] != 0 : g[i] == 0, text(found.predictions));
  });
}

TEST_CASE("for equal targets a prediction scores all or nothing, with zero gradients") {
  on_ranks({1, 2, 3, 5}, [](Communicator& comm) {
    for (const DType dtype : {DType::f32, DType::f64})
      for (const double target : {0.0, 0.1, -1e6 / 3}) {
        const int64_t mine = rows_on(number(comm));
        const Tensor equal = Tensor::full({mine}, target, dtype), other = part(number(comm), {}).to(dtype);
        const Tensor apart = affine(equal, 1, target == 0 ? 1 : target).value();  // off by the same amount everywhere
        const auto check = [&](auto metric, const Tensor& predictions, double score) {
          const Graded found = graded([&](auto& a, auto& b) { return metric(a, b, comm); }, predictions, equal);
          expect(found.value.item() == score, text(found.value));
          for (const Tensor* g : {&found.predictions, &found.targets})
            for (const double x : g->values()) expect(x == 0, text(*g));
        };
        const auto r2 = [](auto& a, auto& b, auto& c) { return r2_score(a, b, c); };
        const auto ev = [](auto& a, auto& b, auto& c) { return explained_variance(a, b, c); };
        check(r2, equal, 1);
        check(ev, equal, 1);
        check(r2, apart, 0);
        check(ev, apart, 1);
        check(r2, other, 0);
        check(ev, other, 0);
      }
  });
}

TEST_CASE("targets of which one in a hundred differs by a unit in its last place count as equal") {
  on_ranks({1, 3}, [](Communicator& comm) {
    Tensor targets = Tensor::full({100}, 0.1, DType::f64), predictions = targets.clone();
    for (int64_t i = 0; i < 100; ++i) predictions.mutate<double>()[i] += i % 2 ? 1 : -1;
    if (number(comm) == 0) targets.mutate<double>()[0] = std::nextafter(0.1, 1);
    expect(r2_score(predictions, targets, comm).value().item() == 0, "r2_score");
    expect(explained_variance(predictions, targets, comm).value().item() == 0, "explained_variance");
  });
}

TEST_CASE("regression metrics of no samples and of zero rows are zero") {
  on_ranks({1, 2}, [](Communicator& comm) {
    Tape tape;
    const Var none = tape.watch(Tensor({0, 2}, DType::f64)), zeros = tape.watch(Tensor::zeros({1, 2}, DType::f64));
    const Var error = mean_squared_error(none, none, comm), cosine = cosine_similarity(none, none, Over::mean, comm);
    expect_close(error, row_of({0, 0}));
    expect_close(cosine, scalar(0));
    tape.gradient(sum(error) + cosine, Var(scalar(1)), {none});
    const Var parallel = cosine_similarity(zeros, zeros, Over::mean, comm);
    expect_close(parallel, scalar(0));
    expect_close(tape.gradient(parallel, Var(scalar(1)), {zeros})[0], Tensor::zeros({1, 2}, DType::f64));
  });
}

TEST_CASE("regression metrics refuse inputs that do not match") {
  on_ranks({1, 2}, [](Communicator& comm) {
    const Tensor two({4, 2}, DType::f64), three({4, 3}, DType::f64), vector({4}, DType::f64), cube({4, 2, 2});
    expect_refusal([&] { mean_squared_error(two, three, comm); }, {"mean_squared_error: predictions (4, 2)", "(4, 3)"});
    const Tensor turned = two.reshape({2, 4});
    expect_refusal([&] { r2_score(two, turned, comm); }, {"r2_score: predictions (4, 2) for targets (2, 4)"});
    expect_refusal([&] { root_mean_squared_error(vector, two, comm); }, {"root_mean_squared_error", "(4)", "(4, 2)"});
    expect_refusal([&] { pearson_correlation(cube, cube, comm); },
                   {"pearson_correlation: one value or row", "(4, 2, 2)"});
    expect_refusal([&] { r2_score(scalar(1), scalar(1), comm); }, {"r2_score", "not ()"});
    expect_refusal([&] { cosine_similarity(vector, vector, Over::sum, comm); }, {"cosine_similarity: rows", "(4)"});
  });
}

}  // namespace test_regression_metrics
