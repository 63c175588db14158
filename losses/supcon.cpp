#include "losses/supcon.h"

#include <numeric>

#include "collectives/ops.h"
#include "collectives/spreads.h"
#include "engine/ops/checks.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"
#include "engine/ops/matmul.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/all_scores.h"
#include "losses/case.h"
#include "losses/division.h"
#include "losses/loss_call.h"
#include "losses/precision.h"

namespace weft {
namespace {

// How many features of all ranks are in each class, in their type.
Tensor class_counts(const Var& labels, int64_t classes, DType dtype, Communicator& comm, Site site) {
  const Tensor ones = Tensor::full({labels.size(), 1}, 1, dtype, labels.device());
  return comm.all_reduce(scatter_add_rows(ones, labels.value(), classes).value().reshape({classes}), ReduceOp::sum,
                         site);
}

Tensor like(const Tensor& x, double value) { return Tensor::full(x.shape(), value, x.dtype(), x.device()); }

// How many features have a companion, at least one: a scalar.
Tensor anchors(const Tensor& counts) {
  const Var kept = where(greater(counts, like(counts, 1.5)), counts, like(counts, 0));
  return maximum(sum(kept), Tensor::full({}, 1, counts.dtype(), counts.device())).value();
}

Tensor self_numbers(const Division& division) {
  Tensor numbers({division.mine(), 1}, DType::i64);
  std::iota(numbers.mutate<int64_t>(), numbers.mutate<int64_t>() + numbers.size(), division.first);
  return numbers;
}

}  // namespace

Var supcon(const Var& features, const Tensor& labels, int64_t classes, const SupConOptions& options, Communicator& comm,
           Site caller) try {
  const Site site = LossCall("supcon", caller)
                        .positive("temperature", options.temperature)
                        .count("classes", classes)
                        .exchange(options.exchange);
  require(features.shape().rank() == 2 && labels.dtype() == DType::i64 && labels.shape().rank() == 1 &&
              labels.shape()[0] == features.shape()[0],
          "features are (b, d) and labels i64 (b), not ", features.shape(), " and ", labels.dtype(), " ",
          labels.shape());
  within("labels", labels, classes, "class");
  const Division division(features.shape()[0], comm, site);
  const Var z = l2_normalize(precise(features)), scale = constant_scale(1 / options.temperature, z);
  if (division.total < 2) return as_partial(sum(z) * 0.0, comm);

  const AllKeys all(z, division.rows, options.exchange, comm, site);
  const Var others = all.log_sum_exp(z, scale, {}, self_numbers(division)).of_queries;
  const Var own_class = derived(labels.to(z.device()), z);
  const Var sums = all_reduce(scatter_add_rows(z, own_class, classes), comm, ReduceOp::sum, site);
  const Tensor counts = class_counts(own_class, classes, z.dtype(), comm, site);
  const Tensor companions = (gather_rows(counts, own_class.value()) - 1).value(), none = like(companions, 0);
  const Var count = derived(maximum(companions, like(companions, 1)).value(), z);
  const Var positives = sum(z * (gather_rows(sums, own_class) - z), 1) / count / options.temperature;
  const Var terms = cast(others - cast(positives, DType::f64), z.dtype());
  const Var counted = where(derived(greater(companions, none), z), terms, derived(none, z));
  return as_partial(sum(counted) / same_everywhere(anchors(counts)), comm);
} catch (Error& error) {
  fail_in("supcon", caller, error);
}

namespace {

constexpr int64_t classes = 4;

// The last class has one feature only, which so has no companion.
Tensor labels_of(const LossCase::Inputs& x) {
  Tensor labels({x.rows[0].shape()[0]}, DType::i64);
  for (int64_t i = 0; i < labels.size(); ++i) {
    const int64_t number = x.first + i;
    labels.mutate<int64_t>()[i] = number == 4 ? 3 : number * number % 3;
  }
  return labels;
}

// By masks of pairs.
Var whole_supcon(const LossCase::Inputs& x) {
  const Var z = l2_normalize(x.rows[0]);
  const Tensor labels = labels_of(x);
  const int64_t n = labels.size();
  Tensor self = Tensor::zeros({n, n}, DType::f64), weights = Tensor::zeros({n, n}, DType::f64);
  double counted = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto positive = [&](int64_t j) { return j != i && labels.data<int64_t>()[j] == labels.data<int64_t>()[i]; };
    double count = 0;
    for (int64_t j = 0; j < n; ++j) count += positive(j);
    for (int64_t j = 0; j < n; ++j) weights.mutate<double>()[i * n + j] = positive(j) ? 1 / count : 0;
    self.mutate<double>()[i * n + i] = 1e9;
    counted += count > 0;
  }
  const Var logits = matmul(z, z, Transpose::no, Transpose::yes) / 0.1;
  return -sum(log_softmax(logits - Var(self)) * Var(weights)) / counted;
}

LossCase supcon_case(const char* variant, Exchange exchange) {
  return {"SupCon",
          variant,
          {{{3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return supcon(x.rows[0], labels_of(x), classes, {.exchange = exchange}, comm);
          },
          whole_supcon};
}

const LossCase supcon_cases[] = {
    supcon_case("gather", {}),
    supcon_case("ring", {Exchange::Way::ring}),
    supcon_case("both ways", {Exchange::Way::both_ways}),
    supcon_case("in turn", {Exchange::Way::in_turn}),
    supcon_case("chunked", {Exchange::Way::chunked, 2}),
};

}  // namespace
}  // namespace weft
