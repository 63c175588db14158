// SPDX-License-Identifier: Apache-2.0
#pragma once
// The default number of ranks as threads.
#include <cstdint>
#include <filesystem>
#include <vector>

namespace weft {

// The number of physical cores of these logical CPUs, from /sys, but at most the CPU limit of the container (cgroup).
int64_t physical_cores(const std::vector<int>& cpus, const std::filesystem::path& sys = "/sys");
int64_t physical_cores();  // of the CPUs that this process may run on

}  // namespace weft
