// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace weft {

// So many f32 values take 2^47 bytes, all addresses of an x86-64 process. A system refuses them even if it promises
// memory that it does not have (vm.overcommit_memory 1), where 2^40 values would be granted and then be written.
constexpr int64_t beyond_memory = int64_t{1} << 45;

}  // namespace weft
