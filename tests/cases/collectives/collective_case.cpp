// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/collectives/collective_case.h"

namespace weft {

static std::vector<const DistributedCase*>& registry() {
  static std::vector<const DistributedCase*> cases;
  return cases;
}

DistributedCase::DistributedCase(std::string name, decltype(shapes) shapes, decltype(call) call,
                                 decltype(specification) specification, double low, double high, int orders)
    : name(std::move(name)),
      shapes(std::move(shapes)),
      call(std::move(call)),
      specification(std::move(specification)),
      low(low),
      high(high),
      orders(orders) {
  registry().push_back(this);
}
DistributedCase::~DistributedCase() { std::erase(registry(), this); }

const std::vector<const DistributedCase*>& DistributedCase::all() { return registry(); }

}  // namespace weft
