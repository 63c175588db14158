// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checksums would keep a fuzzer out of all that lies behind them. So a safetensors file whose header gives itself the
// checksum 0000000000000000 gets sound ones, of the header and of all tensors.
#include <string>
#include <string_view>

namespace weft::fuzz {

std::string with_sound_sums(std::string_view file);

}  // namespace weft::fuzz
