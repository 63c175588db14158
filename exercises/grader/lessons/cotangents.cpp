// SPDX-License-Identifier: Apache-2.0
#include "exercises/grader/lessons.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::grader {
namespace {

using exercises::Cotangents;
using CotangentsOf = std::function<Cotangents(const Var& w, const Var& x)>;

Measure of_cotangents(const CotangentsOf& answer) {
  return [=](Communicator& comm, const Rows& samples) -> std::vector<Tensor> {
    const Shape shape{rows_of_rank(samples, comm.rank().value)};
    const Cotangents given = answer(normal(shape, 1, comm), normal(shape, 2, comm));
    return {given.product.value(), given.square.value(), given.w.value()};
  };
}

Cotangents by_tape(const Var& w, const Var& x) {
  Tape tape;
  const Var leaf = tape.watch(w.value()), product = leaf * tape.constant(x.value()), square = leaf * leaf;
  const std::vector<Var> all = tape.gradient(sum(product * square + product), {product, square, leaf});
  return {all[0].value(), all[1].value(), all[2].value()};
}

// With another cotangent of w.
CotangentsOf with_w(const std::function<Var(const Var& w, const Var& x, const Cotangents& right)>& wrong) {
  return [=](const Var& w, const Var& x) {
    Cotangents given = by_tape(w, x);
    given.w = wrong(w, x, given);
    return given;
  };
}

}  // namespace

Lesson cotangents(const CotangentsOf& learner) {
  const auto answer = [](const char* signature, const char* what, const CotangentsOf& wrong) {
    return Answer{signature, what, of_cotangents(wrong)};
  };
  const auto of_w = [&](const char* signature, const char* what, const auto& wrong) {
    return answer(signature, what, with_w(wrong));
  };
  return {1,
          "the cotangents of a tape",
          {{"the cotangent of product"}, {"the cotangent of square"}, {"the cotangent of w"}},
          of_cotangents(learner),
          of_cotangents(by_tape),
          {
              of_w("S32", "What w is handed through square is missing.",
                   [](const Var&, const Var& x, const Cotangents& r) { return r.product * x; }),
              of_w("S32", "What w is handed through product is missing.",
                   [](const Var& w, const Var&, const Cotangents& r) { return 2 * r.square * w; }),
              of_w("S32", "square uses w twice, and one of the two uses is missing.",
                   [](const Var& w, const Var& x, const Cotangents& r) { return r.product * x + r.square * w; }),
              of_w("", "A node hands on its cotangent times the other factor; through product, x is missing.",
                   [](const Var& w, const Var&, const Cotangents& r) { return r.product + 2 * r.square * w; }),
              of_w("", "A node hands on its cotangent times the other factor; through square, w is missing.",
                   [](const Var&, const Var& x, const Cotangents& r) { return r.product * x + 2 * r.square; }),
              of_w("", "The cotangents of product and square are taken for each other.",
                   [](const Var& w, const Var& x, const Cotangents& r) { return r.square * x + 2 * r.product * w; }),
              of_w("", "These are derivatives of each node alone, not times the cotangents of product and square.",
                   [](const Var& w, const Var& x, const Cotangents&) { return x + 2 * w; }),
              answer("S32", "product is used twice, and one of the two uses is missing.",
                     [](const Var& w, const Var& x) -> Cotangents {
                       return {w * w, w * x, w * w * x + 2 * w * x * w};
                     }),
              answer("", "A product hands each factor the other one. Here each gets itself.",
                     [](const Var& w, const Var& x) -> Cotangents {
                       const Var product = w * x, square = w * w;
                       return {product + 1, square, (product + 1) * x + 2 * square * w};
                     }),
          }};
}

}  // namespace weft::grader
