// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nccl/nccl.h"

namespace weft {

void take_card(int) {}

std::string obstacle_to_nccl(Transport&) { return "this program was built without NCCL"; }

std::unique_ptr<Transport> connect_nccl(std::unique_ptr<Transport> group, std::chrono::milliseconds, SetUp) {
  fail({"transport nccl: ", obstacle_to_nccl(*group)});
}

}  // namespace weft
