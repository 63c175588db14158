#pragma once
// How many ranks a machine has room for, when nobody has said how many to start.
#include <cstdint>
#include <filesystem>
#include <vector>

namespace weft {

// The physical cores among these logical CPUs, by what the kernel says in /sys, and at most as many as a container
// (cgroup) may use.
int64_t physical_cores(const std::vector<int>& cpus, const std::filesystem::path& sys = "/sys");
int64_t physical_cores();  // of the CPUs that this process may run on

}  // namespace weft
