// SPDX-License-Identifier: Apache-2.0
// Our losses against those of other libraries, for the same inputs on the same three ranks (tests/losses/upstream.h).
// On one process all of them compute what we do. Where a library's gradient on ranks differs, the test states it and
// reproduces it.
#include "tests/emulated/contrastive.h"
#include "tests/emulated/statistics.h"
#include "tests/losses/upstream.h"
#include "tests/support/catch.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/assignment/dino.h"
#include "weft/losses/assignment/msn.h"
#include "weft/losses/assignment/swav.h"
#include "weft/losses/contrastive/clip.h"
#include "weft/losses/contrastive/dcl.h"
#include "weft/losses/contrastive/info_nce.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/losses/contrastive/siglip.h"
#include "weft/losses/metrics/cross_entropy.h"
#include "weft/losses/metrics/regression_metrics.h"
#include "weft/losses/metrics/structural_similarity.h"
#include "weft/losses/statistics/barlow_twins.h"
#include "weft/losses/statistics/koleo.h"
#include "weft/losses/statistics/sigreg.h"
#include "weft/losses/statistics/tico.h"
#include "weft/losses/statistics/vicreg.h"

using namespace weft;

namespace {

constexpr double exact = 1e-12;
constexpr double W = 3;

const UpstreamCase& upstream(const char* loss, const char* mode) { return Upstream::stored()(loss, mode); }
using Inputs = std::span<const Var>;

Var clip(Inputs x, Inputs shared, Communicator& comm) {
  return clip_loss(l2_normalize(x[0]), l2_normalize(x[1]), shared[0], {}, comm);
}
Var siamese(Inputs x, Inputs shared, const MsnOptions& options, Communicator& comm) {
  return msn({x[0]}, x[1], shared[0], options, comm);
}

}  // namespace

TEST_CASE("Lightly's NT-Xent equals ours, also on ranks") {
  const UpstreamCase& c = upstream("NT-Xent", "gather_distributed");
  const Graded ours = on_ranks_of(
      c, [](Inputs x, Inputs, Communicator& comm) { return nt_xent(x[0], x[1], {.temperature = 0.5}, comm); });
  CHECK(apart_everywhere(c, ours) <= exact);
}

TEST_CASE("Lightly's DCL equals ours, also on ranks") {
  const UpstreamCase& c = upstream("DCL", "gather_distributed");
  const Graded ours =
      on_ranks_of(c, [](Inputs x, Inputs, Communicator& comm) { return dcl(x[0], x[1], {.temperature = 0.1}, comm); });
  CHECK(apart_everywhere(c, ours) <= exact);
}

TEST_CASE("Lightly's DCLW weighs each rank's pairs separately, so its loss depends on the division") {
  const UpstreamCase& c = upstream("DCLW", "gather_distributed");
  const auto weighted = [&](DclWeights weights) {
    return on_ranks_of(
        c, [=](Inputs x, Inputs, Communicator& comm) { return dcl(x[0], x[1], {.weights = weights}, comm); });
  };
  const Graded ours = weighted(DclWeights::of_batch);
  CHECK(apart_on_one_process(c, ours) <= exact);
  CHECK(features_apart(c, ours) == Approx(0.0759).epsilon(1e-3));
  CHECK(features_apart(c, weighted(DclWeights::of_rank)) <= exact);
}

TEST_CASE("Lightly's NT-Xent with a memory bank equals our InfoNCE against the bank alone") {
  const UpstreamCase& c = upstream("InfoNCE", "memory_bank_size");
  const Graded ours = on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
    const InfoNceOptions options{
        .temperature = 0.2, .negatives = replicated_constant(c.given.at("bank")), .in_batch = false};
    return info_nce(x[0], x[1], options, comm);
  });
  CHECK(apart_on_one_process(c, ours) <= exact);
}

TEST_CASE("Lightly's VICReg equals ours, also on ranks") {
  const UpstreamCase& c = upstream("VICReg", "gather_distributed");
  const Graded ours = on_ranks_of(c, [](Inputs x, Inputs, Communicator& comm) { return vicreg(x[0], x[1], {}, comm); });
  CHECK(apart_everywhere(c, ours) <= exact);
}

TEST_CASE("Lightly's TiCo equals ours in loss and state, also on ranks") {
  const UpstreamCase& c = upstream("TiCo", "gather_distributed");
  const Graded ours = on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
    Tico tico("tico", 5, {.key = {}, .dtype = DType::f64}, {.beta = 0.9, .rho = 8});
    tico.covariance.value = c.given.at("covariance");
    const Var loss = tico(x[0], x[1], {.training = true}, comm);
    tico.update();
    for (const auto& state : c.ranks.states)
      require(apart(state.at("covariance"), tico.covariance.value) <= exact, "another covariance");
    return loss;
  });
  CHECK(apart_everywhere(c, ours) <= exact);
}

TEST_CASE("Lightly's SIGReg equals ours, also on ranks") {
  // The library was given the directions that we draw from this key.
  const UpstreamCase& c = upstream("SIGReg", "gather_distributed");
  const Graded ours =
      on_ranks_of(c, [](Inputs x, Inputs, Communicator& comm) { return sigreg(x[0], {7}, {.directions = 3}, comm); });
  CHECK(apart_everywhere(c, ours) <= exact);
}

TEST_CASE("Lightly's SwaV equals ours, also on ranks") {
  const UpstreamCase& c = upstream("SwaV", "sinkhorn_gather_distributed");
  const Graded ours = on_ranks_of(c, [](Inputs x, Inputs, Communicator& comm) {
    return swav({x[0], x[1]}, {x[2]}, {}, comm);
  });
  CHECK(apart_everywhere(c, ours) <= exact);
}

TEST_CASE("Lightly's DINO equals ours in loss and center, also on ranks with equal batches") {
  const UpstreamCase& c = upstream("DINO", "center");
  const Graded ours = on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
    Dino dino("dino", 6, {.key = {}, .dtype = DType::f64}, {.teacher_temperature = 0.07});
    dino.center.value = c.given.at("center");
    const Var loss = dino({x[0], x[1]}, {x[2], x[3], x[4]}, {.training = true}, comm);
    dino.update(comm);
    for (const auto& state : c.ranks.states)
      require(apart(state.at("center"), dino.center.value) <= exact, "another center");
    return loss;
  });
  CHECK(apart_everywhere(c, ours) <= 1e-7);  // its temperature is f32
}

TEST_CASE("Lightly's Barlow Twins normalizes each rank's samples separately, which is another loss") {
  const UpstreamCase& c = upstream("Barlow Twins", "gather_distributed");
  const Graded ours =
      on_ranks_of(c, [](Inputs x, Inputs, Communicator& comm) { return barlow_twins(x[0], x[1], {}, comm); });
  CHECK(apart_on_one_process(c, ours) <= exact);
  CHECK(features_apart(c, ours) == Approx(2.4286).epsilon(1e-3));

  const Graded local = on_ranks_of(c, [](Inputs x, Inputs, Communicator& comm) {
    const auto normalized = [](const Var& z) { return standardize(transpose(z)); };
    const Var correlation =
        all_reduce(matmul(normalized(x[0]), normalized(x[1]), Transpose::no, Transpose::yes), comm) / 12;
    Tensor eye = Tensor::zeros({5, 5}, DType::f64), weights = Tensor::full({5, 5}, 5e-3, DType::f64);
    for (int64_t i = 0; i < 5; ++i) eye.mutate<double>()[6 * i] = weights.mutate<double>()[6 * i] = 1;
    return keep_on(sum(square(correlation - replicated_constant(eye)) * replicated_constant(weights)), {0}, comm);
  });
  CHECK(features_apart(c, local) <= exact);
}

TEST_CASE("Lightly's KoLeo looks for neighbours only on the same rank") {
  const UpstreamCase& c = upstream("KoLeo", "local");
  const auto koleo_among = [&](Neighbours among) {
    return on_ranks_of(c, [=](Inputs x, Inputs, Communicator& comm) { return koleo(x[0], {.among = among}, comm); });
  };
  const Graded ours = koleo_among(Neighbours::of_all_ranks);
  CHECK(apart_on_one_process(c, ours) <= 1e-7);  // the library adds its epsilon to every coordinate
  CHECK(features_apart(c, ours) == Approx(1.1218).epsilon(1e-3));
  CHECK(features_apart(c, koleo_among(Neighbours::of_own_rank)) <= 1e-7);
}

TEST_CASE("Lightly's MSN regularizes the mean of each rank's own predictions") {
  const UpstreamCase& plain = upstream("MSN", "without regularization");
  const Graded without = on_ranks_of(plain, [](Inputs x, Inputs shared, Communicator& comm) {
    return siamese(x, shared, {.regularization_weight = 0}, comm);
  });
  CHECK(apart_everywhere(plain, without) <= exact);

  const UpstreamCase& c = upstream("MSN", "gather_distributed");
  const Graded ours =
      on_ranks_of(c, [](Inputs x, Inputs shared, Communicator& comm) { return siamese(x, shared, {}, comm); });
  CHECK(apart_on_one_process(c, ours) <= exact);
  CHECK(features_apart(c, ours) == Approx(0.2814).epsilon(1e-3));
  CHECK(scalars_apart(c, ours) == Approx(0.1819).epsilon(1e-3));

  const Graded local = on_ranks_of(c, [](Inputs x, Inputs shared, Communicator& comm) {
    const Var scores = matmul(l2_normalize(x[0]), l2_normalize(shared[0]), Transpose::no, Transpose::yes) / 0.1;
    const Var p = mean(softmax(scores), 0);
    return siamese(x, shared, {.regularization_weight = 0}, comm) + as_partial(sum(p * log(p)) / W, comm);
  });
  CHECK(features_apart(c, local) <= exact);
  CHECK(scalars_apart(c, local) <= exact);
}

TEST_CASE("Lightly's PMSN on one process equals ours") {
  const UpstreamCase& c = upstream("PMSN", "gather_distributed");
  const Graded ours = on_ranks_of(
      c, [](Inputs x, Inputs shared, Communicator& comm) { return siamese(x, shared, {.power_law = 0.25}, comm); });
  CHECK(apart_on_one_process(c, ours) <= 1e-6);  // the library's power law is f32
  CHECK(features_apart(c, ours) == Approx(0.5803).epsilon(1e-3));
}

TEST_CASE("OpenCLIP's default loss gives the towers 1/W of their gradient, and the temperature all of it (S3)") {
  const UpstreamCase& c = upstream("CLIP", "local_loss=False, gather_with_grad=False");
  const Graded ours = on_ranks_of(c, clip);
  CHECK(apart_on_one_process(c, ours) <= exact);
  CHECK(features_apart(c, ours, 1 / W) <= exact);
  CHECK(scalars_apart(c, ours) <= exact);
}

TEST_CASE("OpenCLIP's loss with a gradient through the gather equals ours, with local or global rows") {
  for (const char* mode : {"local_loss=False, gather_with_grad=True", "local_loss=True, gather_with_grad=True"}) {
    const UpstreamCase& c = upstream("CLIP", mode);
    CHECK(apart_everywhere(c, on_ranks_of(c, clip)) <= exact);
  }
}

TEST_CASE("OpenCLIP's local loss without a gradient through the gather lacks the keys' gradient (S1)") {
  const UpstreamCase& c = upstream("CLIP", "local_loss=True, gather_with_grad=False");
  const Graded ours = on_ranks_of(c, clip);
  CHECK(features_factor(c, ours) == Approx(0.493).epsilon(1e-3));
  CHECK(scalars_apart(c, ours) <= exact);
}

TEST_CASE("the emulated modes of OpenCLIP have its values and gradients") {
  using emulated::Adjoint;
  const auto check = [](const char* mode, auto loss, Adjoint adjoint) {
    const UpstreamCase& c = upstream("CLIP", mode);
    const Graded emulated = on_ranks_of(c, [&](Inputs x, Inputs shared, Communicator& comm) {
      return loss(l2_normalize(x[0]), l2_normalize(x[1]), shared[0], adjoint, comm) / W;
    });
    INFO(mode);
    CHECK(value_apart(c, emulated) <= exact);
    CHECK(features_apart(c, emulated) <= exact);
    CHECK(scalars_apart(c, emulated) <= exact);
  };
  check("local_loss=False, gather_with_grad=False", emulated::clip_of_all_rows, Adjoint::own_slot);
  check("local_loss=False, gather_with_grad=True", emulated::clip_of_all_rows, Adjoint::sum);
  check("local_loss=True, gather_with_grad=False", emulated::clip_of_own_rows, Adjoint::none);
  check("local_loss=True, gather_with_grad=True", emulated::clip_of_own_rows, Adjoint::sum);
}

TEST_CASE("the emulated metric of TorchMetrics has its value and gradients") {
  const UpstreamCase& c = upstream("root mean squared error", "dist_sync_on_step");
  const Graded emulated = on_ranks_of(
      c, [](Inputs x, Inputs, Communicator& comm) { return emulated::root_mean_squared_error(x[0], x[1], comm) / W; });
  CHECK(value_apart(c, emulated) <= exact);
  CHECK(features_apart(c, emulated) <= exact);
}

TEST_CASE("OpenCLIP's SigLIP equals ours in each of its four exchanges") {
  for (const char* schedule : {"gather", "shift", "bidir", "reduce"}) {
    const UpstreamCase& c = upstream("SigLIP", schedule);
    const Graded ours = on_ranks_of(c, [](Inputs x, Inputs shared, Communicator& comm) {
      return siglip_loss(l2_normalize(x[0]), l2_normalize(x[1]), shared[0], shared[1], {}, comm);
    });
    INFO(schedule);
    CHECK(apart_everywhere(c, ours) <= exact);
  }
}

TEST_CASE("a TorchMetrics metric as a loss has 1/W of its gradient, on shards of 1, 2 and 4 samples (S3)") {
  const auto check = [](const char* metric, auto loss, double precision) {
    const UpstreamCase& c = upstream(metric, "dist_sync_on_step");
    const Graded ours =
        on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) { return keep_on(loss(x, comm), {0}, comm); });
    INFO(metric);
    CHECK(apart_on_one_process(c, ours) <= precision);
    CHECK(value_apart(c, ours) <= precision);
    CHECK(features_apart(c, ours, 1 / W) <= precision);
  };
  check(
      "mean squared error", [](Inputs x, Communicator& comm) { return mean_squared_error(x[0], x[1], comm); }, exact);
  check(
      "root mean squared error", [](Inputs x, Communicator& comm) { return root_mean_squared_error(x[0], x[1], comm); },
      exact);
  check(
      "Pearson correlation", [](Inputs x, Communicator& comm) { return pearson_correlation(x[0], x[1], comm); }, exact);
  check(
      "R2", [](Inputs x, Communicator& comm) { return r2_score(x[0], x[1], comm); }, exact);
  check(
      "explained variance", [](Inputs x, Communicator& comm) { return explained_variance(x[0], x[1], comm); }, exact);
  const StructuralSimilarityOptions small_window{
      .data_range = 2, .sigma = 0.6, .k1 = 0.1, .k2 = 0.3, .places = Places::everywhere};
  check(
      "SSIM", [&](Inputs x, Communicator& comm) { return structural_similarity(x[0], x[1], small_window, comm); },
      exact);
  check(
      "cosine similarity", [](Inputs x, Communicator& comm) { return cosine_similarity(x[0], x[1], Over::mean, comm); },
      1e-6);  // the library computes in f32
}

TEST_CASE("a TorchMetrics metric added to an ordinary mean has 1/W of its weight") {
  const UpstreamCase& c = upstream("metrics and a loss", "root mean squared error and an ordinary mean");
  const auto weighted = [&](double weight) {
    return on_ranks_of(c, [=](Inputs x, Inputs, Communicator& comm) {
      const Var metric = keep_on(root_mean_squared_error(x[0], x[1], comm), {0}, comm);
      return metric * weight + share(sum(square(x[0])), 6, comm);
    });
  };
  CHECK(apart_on_one_process(c, weighted(1)) <= exact);
  CHECK(features_apart(c, weighted(1)) > 0.1);
  CHECK(features_apart(c, weighted(1 / W)) <= exact);
}

TEST_CASE("PyTorch's cross entropy on one process equals ours on ranks, with weights, smoothing and ignored targets") {
  const auto check = [](const char* mode, double smoothing) {
    const UpstreamCase& c = upstream("cross entropy", mode);
    const Graded ours = on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
      CrossEntropyOptions options{.label_smoothing = smoothing};
      if (c.given.contains("weights")) options.weights = Var(c.given.at("weights"));
      return cross_entropy(x[0], constant_like(x[1].value().to(DType::i64), x[1]), options, comm);
    });
    INFO(mode);
    CHECK(apart_on_one_process(c, ours) <= exact);
  };
  check("plain", 0);
  check("weights", 0);
  check("smoothing", 0.2);
  check("weights, smoothing", 0.2);
  check("weights, all smoothing", 1);
}

TEST_CASE("SSIM in the interior of images equals scikit-image 0.26 with Gaussian weights") {
  const UpstreamCase& c = upstream("SSIM", "dist_sync_on_step");
  const StructuralSimilarityOptions options{.data_range = 2, .sigma = 0.6, .k1 = 0.1, .k2 = 0.3};
  const Graded ours = on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
    return keep_on(structural_similarity(x[0], x[1], options, comm), {0}, comm);
  });
  CHECK(std::abs(ours.value - 0.7281594199358052) <= 1e-14);
}
