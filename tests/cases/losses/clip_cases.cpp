// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/losses/loss_case.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/contrastive/clip.h"

namespace weft {
namespace {

// The mean of the cross entropies of the rows and of the columns of the matrix of all scores.
Var whole_clip(const LossCase::Inputs& x) {
  const Var products = matmul(x.rows[0], x.rows[1], Transpose::no, Transpose::yes);
  const Var logits = products * reshape(repeat(exp(x.shared[0]), 0, products.size()), products.shape());
  const Var own = Tensor::arange(products.shape()[0]);
  return (mean(cross_entropy(logits, own)) + mean(cross_entropy(transpose(logits), own))) / 2;
}

LossCase in_form(const char* variant, ClipForm form, KeySchedule schedule = {}) {
  return {"CLIP",
          variant,
          {{{3}, {3}}, {{}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return clip_loss(x.rows[0], x.rows[1], exp(x.shared[0]), {form, schedule}, comm);
          },
          whole_clip};
}

const LossCase clip_cases[] = {
    in_form("one tower, gather", ClipForm::one_tower),
    in_form("one tower, ring", ClipForm::one_tower, {KeySchedule::ring}),
    in_form("one tower, both ways", ClipForm::one_tower, {KeySchedule::both_ways}),
    in_form("one tower, per rank", ClipForm::one_tower, {KeySchedule::per_rank}),
    in_form("one tower, chunked", ClipForm::one_tower, {KeySchedule::chunked, 2}),
    in_form("local rows, gather", ClipForm::local_rows),
    in_form("local rows, ring", ClipForm::local_rows, {KeySchedule::ring}),
    in_form("local rows, both ways", ClipForm::local_rows, {KeySchedule::both_ways}),
    in_form("local rows, per rank", ClipForm::local_rows, {KeySchedule::per_rank}),
    in_form("local rows, chunked", ClipForm::local_rows, {KeySchedule::chunked, 2}),
    in_form("replicated", ClipForm::replicated),
};

}  // namespace
}  // namespace weft
