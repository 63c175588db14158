// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tape/op.h"

namespace weft {

static std::vector<const Op*>& registry() {
  static std::vector<const Op*> ops;
  return ops;
}

Op::Op(std::string name, std::vector<Sample> samples, Algebra algebra, Replay replay)
    : name(std::move(name)), samples(std::move(samples)), algebra(algebra), replay(replay) {
  registry().push_back(this);
}
Op::~Op() { std::erase(registry(), this); }

const std::vector<const Op*>& Op::all() { return registry(); }

}  // namespace weft
