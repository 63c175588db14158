// SPDX-License-Identifier: Apache-2.0
#pragma once
// A lesson as the grader sees it: what a function gives on each rank, and answers to compare it with.
#include <functional>
#include <string>
#include <vector>

#include "tools/web/mistakes.h"
#include "weft/collectives/communicator.h"

namespace weft::grader {

// What a function gives on this rank, a tensor for each quantity of the lesson, if ranks have so many samples.
using Measure = std::function<std::vector<Tensor>(Communicator&, const Rows& samples)>;

// A right answer, or a wrong one that people give.
struct Answer {
  std::string signature;  // of verify.md, or empty
  std::string what;       // the sentence that a learner reads
  Measure measure;
};

struct Quantity {
  std::string name;
  int derivative = 0;  // of what order; a mistake in a lower one makes the higher ones wrong, too
};

struct Lesson {
  int number;
  std::string title;
  std::vector<Quantity> quantities;
  Measure learner, right;
  std::vector<Answer> mistakes;
};

// Numbers that differ per rank and purpose.
inline Tensor normal(const Shape& shape, uint64_t purpose, int rank) {
  return Tensor::normal(shape, {.seed = purpose, .stream = static_cast<uint64_t>(rank + 1)}, 0, 1, DType::f64);
}
inline Tensor normal(const Shape& shape, uint64_t purpose, const Communicator& comm) {
  return normal(shape, purpose, comm.rank().value);
}

// The mistakes of tools/web as answers of a lesson; `measure` takes one of them.
template <class F> void add_mistakes_of_collectives(std::vector<Answer>& mistakes, const F& measure) {
  for (const web::Mistake& mistake : web::mistakes())
    if (&mistake != &web::mistakes()[0]) mistakes.push_back({mistake.signature, mistake.what, measure(mistake)});
}

}  // namespace weft::grader
