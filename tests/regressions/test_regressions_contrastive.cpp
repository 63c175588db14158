// SPDX-License-Identifier: Apache-2.0
// Contrastive losses whose gradients were wrong in other libraries. Tags such as [r15] are those of README.md; tags
// such as [S3] are the signatures of docs/losses.md.
#include "tests/emulated/contrastive.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/contrastive/clip.h"
#include "weft/losses/contrastive/dcl.h"
#include "weft/losses/contrastive/info_nce.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/losses/contrastive/siglip.h"

using namespace weft;

namespace test_regressions_contrastive {

Tensor images_of(int rank) { return data_of(rank, {1 + (rank + 1) % 3, 4}, 1); }
Tensor texts_of(int rank) { return data_of(rank, {1 + (rank + 1) % 3, 4}, 2); }

// The gradients of this rank's images and texts, and of the scale summed over ranks.
struct Step {
  Tensor images, texts, scale;
};
using ClipLike = std::function<Var(const Var& images, const Var& texts, const Var& scale)>;
Step step(const ClipLike& loss, Communicator& comm) {
  Tape tape;
  declare_group(tape, comm);
  const Var images = tape.watch(images_of(number(comm))), texts = tape.watch(texts_of(number(comm)));
  const Var scale = with_placement(tape.watch(scalar(2)), comm, Placement::replicated);
  const auto g = tape.gradient(loss(images, texts, scale), {images, texts, scale});
  return {g[0].value(), g[1].value(), comm.all_reduce(g[2].value())};
}

double inner(const Tensor& a, const Tensor& b, Communicator& comm) {
  return comm.all_reduce(sum(Var(a) * b).value()).item();
}

// PyTorch Lightning #6624, Lightly #1531, DeCLUTR #212, VISSL #230, PyTorch Metric Learning #363, diffdist #1: gathers
// that keep the local slice only, or scale it wrongly.
TEST_CASE("every contrastive loss through an encoder has one process's gradient, with every key schedule", "[r15]") {
  using Loss = std::function<Var(const Var&, const Var&, const KeySchedule&, Communicator&)>;
  const Loss losses[] = {
      [](auto& a, auto& b, auto& schedule, auto& comm) { return nt_xent(a, b, {.schedule = schedule}, comm); },
      [](auto& a, auto& b, auto& schedule, auto& comm) { return dcl(a, b, {.schedule = schedule}, comm); },
      [](auto& a, auto& b, auto& schedule, auto& comm) { return info_nce(a, b, {.schedule = schedule}, comm); },
      [](auto& a, auto& b, auto& schedule, auto& comm) {
        return clip_loss(a, b, replicated_constant(scalar(2)), {.schedule = schedule}, comm);
      },
      [](auto& a, auto& b, auto& schedule, auto& comm) {
        return siglip_loss(a, b, replicated_constant(scalar(2)), replicated_constant(scalar(-1)), schedule, comm);
      }};
  const auto gradient = [](const Loss& loss, const KeySchedule& schedule, const Tensor& a, const Tensor& b,
                           Communicator& comm) {
    const Parameter encoder("encoder", data_of(0, {4, 3}, 3));
    Tape tape;
    Gradients gradients;
    const Var weight = tape.watch(encoder);
    tape.backward(loss(matmul(tape.constant(a), weight), matmul(tape.constant(b), weight), schedule, comm), gradients);
    return comm.all_reduce(gradients[encoder]);
  };
  on_ranks([&](Communicator& comm) {
    const auto alone = comm.split(number(comm));
    Vars images, texts;
    for (int r = 0; r < comm.size(); ++r) {
      images.push_back(images_of(r));
      texts.push_back(texts_of(r));
    }
    const int me = number(comm);
    for (const Loss& loss : losses) {
      const Tensor whole = gradient(loss, {}, concat(images, 0).value(), concat(texts, 0).value(), *alone);
      for (const KeySchedule::Kind way : {KeySchedule::gather, KeySchedule::ring, KeySchedule::both_ways,
                                          KeySchedule::per_rank, KeySchedule::chunked})
        expect_close(gradient(loss, {way, 1}, images_of(me), texts_of(me), comm), whole);
    }
  });
}

// open_clip 3.3.0, local_loss and gather_with_grad (docs/losses.md, "What the libraries do").
TEST_CASE("two of OpenCLIP's four modes train its loss, one gives the towers 1/W of it, one about half", "[S1][S3]") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    const Step right =
        step([&](auto& x, auto& y, auto& s) { return clip_loss(x, y, s, {ClipForm::local_rows}, comm); }, comm);
    using emulated::Adjoint;
    const auto whole = [&](Adjoint adjoint) {
      return step(
          [&](auto& x, auto& y, auto& s) { return emulated::clip_of_all_rows(x, y, s, adjoint, comm) / comm.size(); },
          comm);
    };
    for (const auto& [adjoint, factor] :
         {std::pair(Adjoint::sum, 1.0), std::pair(Adjoint::own_slot, 1.0 / comm.size())}) {
      const Step other = whole(adjoint);
      expect_close(other.images, Var(right.images) * factor);
      expect_close(other.texts, Var(right.texts) * factor);
      expect_close(other.scale, right.scale);
    }
    const Step none =
        step([&](auto& x, auto& y,
                 auto& s) { return emulated::clip_of_own_rows(x, y, s, Adjoint::none, comm) / comm.size(); },
             comm);
    expect_close(none.scale, right.scale);
    const double ratio = std::sqrt(inner(none.images, none.images, comm) / inner(right.images, right.images, comm));
    expect(ratio > 0.4 && ratio < 0.7, "about half of the gradient: " + std::to_string(ratio));
  });
}

// Signature S20 of docs/losses.md: gradients of travelling texts are not sent back.
TEST_CASE("the gradient of a text that travels between ranks is complete", "[S20]") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    const auto loss = [&](const Var& x, const Var& y, const Var& s, KeySchedule::Kind way) {
      return siglip_loss(x, y, s, replicated_constant(scalar(-1)), {way}, comm);
    };
    const auto with = [&](KeySchedule::Kind way) {
      return [=](auto& x, auto& y, auto& s) { return loss(x, y, s, way); };
    };
    const Step right = step(with(KeySchedule::gather), comm);
    for (const KeySchedule::Kind way :
         {KeySchedule::ring, KeySchedule::both_ways, KeySchedule::per_rank, KeySchedule::chunked}) {
      const Step other = step(with(way), comm);
      expect_close(other.images, right.images);
      expect_close(other.texts, right.texts);
      expect_close(other.scale, right.scale);
    }
    const Step lost = step(
        [&](auto& x, auto& y, auto& s) {
          const Var bias = replicated_constant(scalar(-1));
          return emulated::siglip(x, y, s, bias, emulated::Adjoint::own_slot, comm) / comm.size();
        },
        comm);
    expect_close(lost.images, right.images);
    const double apart = inner((Var(lost.texts) - right.texts).value(), (Var(lost.texts) - right.texts).value(), comm);
    expect(apart > 1e-3 * inner(right.texts, right.texts, comm), "others' parts of the gradient are missing");
  });
}

}  // namespace test_regressions_contrastive
