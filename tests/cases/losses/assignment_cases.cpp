// SPDX-License-Identifier: Apache-2.0
// The losses that assign samples to prototypes, compared with the formulas of their papers on the whole batch.
#include "tests/cases/losses/loss_case.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/assignment/dino.h"
#include "weft/losses/assignment/msn.h"
#include "weft/losses/assignment/swav.h"

namespace weft {
namespace {

using Inputs = LossCase::Inputs;

// Scores or features without a gradient, drawn for each sample by its global number.
Var given(const Var& like, int64_t first, int64_t width, uint64_t use) {
  const int64_t n = like.shape()[0];
  Tensor all({n, width}, DType::f64);
  for (int64_t i = 0; i < n; ++i)
    all.slice(i, i + 1).copy_from(
        Tensor::uniform({1, width}, {use, static_cast<uint64_t>(first + i)}, -1, 1, DType::f64));
  return constant_like(all.to(like.device()), like);
}

// Sinkhorn's alternating normalization as the papers write it.
Var plain_sinkhorn(Var q, int iterations) {
  const double samples = static_cast<double>(q.shape()[0]), prototypes = static_cast<double>(q.shape()[1]);
  q = q / repeat(repeat(sum(q), 0, q.shape()[1]), 0, q.shape()[0]);
  for (int i = 0; i < iterations; ++i) {
    q = div_along(q, sum(q, 0), -1) / prototypes;
    q = div_along(q, sum(q, 1), 0) / samples;
  }
  return q * samples;
}
Var cross_entropy_of(const Var& q, const Var& logits) { return -mean(sum(q * log(softmax(logits)), 1)); }

// Codes depend on scores but have no gradient, so finite differences can confirm only crops and views without codes.
constexpr int no_finite_differences = 0;

Var whole_swav(const Vars& high, const Vars& low, const Vars& queued) {
  Var loss = Tensor::zeros({}, DType::f64);
  Vars all = high;
  all.insert(all.end(), low.begin(), low.end());
  for (size_t i = 0; i < high.size(); ++i) {
    const int64_t n = high[i].shape()[0];
    const Var scores = queued.empty() ? high[i] : concat({high[i], queued[i]}, 0);
    const Var q = detach(slice(plain_sinkhorn(exp(scores / 0.5), 3), 0, 0, n));
    for (size_t v = 0; v < all.size(); ++v)
      if (v != i) loss = loss + cross_entropy_of(q, all[v] / 0.1);
  }
  return loss / static_cast<double>(high.size() * (all.size() - 1));
}
constexpr SwavOptions swav_options{.epsilon = 0.5};
const LossCase swav_case{"SwaV",
                         "two high, one low",
                         {{{4}, {4}, {4}}},
                         [](const Inputs& x, Communicator& comm) {
                           return swav({x.rows[0], x.rows[1]}, {x.rows[2]}, swav_options, comm);
                         },
                         [](const Inputs& x) {
                           return whole_swav({x.rows[0], x.rows[1]}, {x.rows[2]}, {});
                         },
                         no_finite_differences};
const LossCase queued_case{
    "SwaV",
    "with a queue",
    {{{4}, {4}}},
    [](const Inputs& x, Communicator& comm) {
      const Var high = given(x.rows[0], x.first, 4, 51), queued = given(x.rows[0], x.first, 4, 52);
      return swav({high}, x.rows, swav_options, comm, {queued});
    },
    [](const Inputs& x) { return whole_swav({given(x.rows[0], 0, 4, 51)}, x.rows, {given(x.rows[0], 0, 4, 52)}); }};

Var unit(const Var& x) { return div_along(x, norm(x, 1), 0); }
Var whole_msn(const Vars& anchors, const Var& targets, const Var& prototypes, const MsnOptions& options) {
  const auto probabilities = [&](const Var& x) {
    return softmax(matmul(unit(x), unit(prototypes), Transpose::no, Transpose::yes) / options.temperature);
  };
  const Var sharp = pow(probabilities(targets), 1 / options.target_temperature);
  const Var q = detach(plain_sinkhorn(div_along(sharp, sum(sharp, 1), 0), options.iterations));
  Vars all;
  Var loss = Tensor::zeros({}, DType::f64);
  for (const Var& view : anchors) {
    all.push_back(probabilities(view));
    loss = loss - mean(sum(q * log(all.back()), 1)) / static_cast<double>(anchors.size());
  }
  const Var average = mean(concat(all, 0), 0);
  const int64_t prototypes_count = average.size();
  if (!options.power_law)
    return loss + (maths::log(static_cast<double>(prototypes_count)) + sum(average * log(average))) *
                      options.regularization_weight;
  const Var power = pow(Var(Tensor::arange(prototypes_count).to(DType::f64)) + 1.0, -*options.power_law);
  const Var prior = power / repeat(sum(power), 0, prototypes_count);
  return loss + sum(prior * log(prior / average)) * options.regularization_weight;
}
LossCase msn_case(std::string name, std::string variant, const MsnOptions& options) {
  return {std::move(name),
          std::move(variant),
          {{{3}, {3}, {3}}, {{4, 3}}},
          [=](const Inputs& x, Communicator& comm) {
            return msn({x.rows[0], x.rows[1]}, x.rows[2], x.shared[0], options, comm);
          },
          [=](const Inputs& x) {
            return whole_msn({x.rows[0], x.rows[1]}, x.rows[2], x.shared[0], options);
          },
          no_finite_differences};
}
const LossCase msn_cases[] = {msn_case("MSN", "", {.temperature = 0.5}),
                              msn_case("MSN", "no Sinkhorn", {.iterations = 0, .regularization_weight = 3}),
                              msn_case("PMSN", "", {.temperature = 0.5, .power_law = 0.25})};
const LossCase anchors_case{"MSN",
                            "anchors alone",
                            {{{3}, {3}}},
                            [](const Inputs& x, Communicator& comm) {
                              const Tensor four({4}, DType::f64, x.rows[0].device());
                              const Var prototypes = replicated_constant(given(four, 0, 3, 54).value());
                              return msn(x.rows, given(x.rows[0], x.first, 3, 53), prototypes, {.temperature = 0.5},
                                         comm);
                            },
                            [](const Inputs& x) {
                              const Var prototypes = given(Tensor({4}, DType::f64), 0, 3, 54);
                              return whole_msn(x.rows, given(x.rows[0], 0, 3, 53), prototypes, {.temperature = 0.5});
                            }};

Var whole_dino(const Vars& teacher, const Vars& student, const Var& center) {
  Var loss = Tensor::zeros({}, DType::f64);
  double pairs = 0;
  for (size_t t = 0; t < teacher.size(); ++t)
    for (size_t s = 0; s < student.size(); ++s) {
      if (s == t) continue;
      const Var q = softmax(sub_along(teacher[t], center, -1) / 0.2);
      loss = loss + cross_entropy_of(q, student[s] / 0.1);
      pairs += 1;
    }
  return loss / pairs;
}
Tensor some_center() { return Tensor::uniform({4}, {55}, -1, 1, DType::f64); }
const LossCase dino_case{
    "DINO",
    "",
    {{{4}, {4}, {4}}},
    [](const Inputs& x, Communicator& comm) {
      const Device device = x.rows[0].device();
      Dino dino("dino", 4, {.key = {1}, .dtype = DType::f64, .device = device}, {.teacher_temperature = 0.2});
      dino.center.value = some_center().to(device);
      return dino({given(x.rows[0], x.first, 4, 56), given(x.rows[0], x.first, 4, 57)}, x.rows, {}, comm);
    },
    [](const Inputs& x) {
      return whole_dino({given(x.rows[0], 0, 4, 56), given(x.rows[0], 0, 4, 57)}, x.rows, some_center());
    }};

}  // namespace
}  // namespace weft
