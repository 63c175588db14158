#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/clip.h"

namespace weft {
namespace {

// Half the cross entropy of the rows of a matrix of all scores, and half that of its columns.
Var whole_clip(const LossCase::Inputs& x) {
  const Var products = matmul(x.rows[0], x.rows[1], Transpose::no, Transpose::yes);
  const Var logits = products * reshape(repeat(exp(x.shared[0]), 0, products.size()), products.shape());
  const Var own = Tensor::arange(products.shape()[0]);
  return (mean(cross_entropy(logits, own)) + mean(cross_entropy(transpose(logits), own))) / 2;
}

LossCase in_form(const char* variant, ClipForm form, Exchange exchange = {}) {
  return {"CLIP",
          variant,
          {{{3}, {3}}, {{}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return clip_loss(x.rows[0], x.rows[1], exp(x.shared[0]), {form, exchange}, comm);
          },
          whole_clip};
}

const LossCase clip_cases[] = {
    in_form("one tower, gather", ClipForm::one_tower),
    in_form("one tower, ring", ClipForm::one_tower, {Exchange::Way::ring}),
    in_form("one tower, both ways", ClipForm::one_tower, {Exchange::Way::both_ways}),
    in_form("one tower, in turn", ClipForm::one_tower, {Exchange::Way::in_turn}),
    in_form("one tower, chunked", ClipForm::one_tower, {Exchange::Way::chunked, 2}),
    in_form("local rows, gather", ClipForm::local_rows),
    in_form("local rows, ring", ClipForm::local_rows, {Exchange::Way::ring}),
    in_form("local rows, both ways", ClipForm::local_rows, {Exchange::Way::both_ways}),
    in_form("local rows, in turn", ClipForm::local_rows, {Exchange::Way::in_turn}),
    in_form("local rows, chunked", ClipForm::local_rows, {Exchange::Way::chunked, 2}),
    in_form("replicated", ClipForm::replicated),
};

}  // namespace
}  // namespace weft
