// SPDX-License-Identifier: Apache-2.0
#include "bench/rivals/torch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "bench/measuring/goal.h"

namespace weft::bench {
namespace {

const char* python() {
  const char* chosen = std::getenv("WEFT_PYTHON");
  return chosen ? chosen : "python3";
}

// Elsewhere than where this was built, WEFT_TORCH_STEPS names the script.
const char* script() {
  const char* chosen = std::getenv("WEFT_TORCH_STEPS");
  return chosen ? chosen : WEFT_TORCH_STEPS;
}

// Debian's OpenBLAS and glibc's malloc are several times slower without these settings; see also torch_steps.py.
void tune() {
  if (__builtin_cpu_supports("avx512f")) {
    setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 1);
    setenv("ATEN_CPU_CAPABILITY", "avx512", 1);
  }
  for (const char* threshold : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"})
    setenv(threshold, "1073741824", 1);
}

}  // namespace

Torch::Torch(Setting setting) {
  std::signal(SIGPIPE, SIG_IGN);  // a missing answer shows that the child has ended
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) throw Unavailable{"no pipe to a child process"};
  child_ = fork();
  if (child_ == 0) {
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    const bool strongest = setting == Setting::strongest;
    if (strongest) tune();
    execlp(python(), python(), script(), strongest ? "strongest" : "installed", nullptr);
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  to_ = fdopen(down[1], "w");
  from_ = fdopen(up[0], "r");
  version_ = answer();
}

Torch::~Torch() {
  std::fclose(to_);  // the child exits at the end of its input
  std::fclose(from_);
  waitpid(child_, nullptr, 0);
}

std::string Torch::answer() {
  char line[256];
  if (!std::fgets(line, sizeof line, from_))
    throw Unavailable{std::string(python()) + " has no working PyTorch; name one that has in WEFT_PYTHON"};
  std::string text = line;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Burst Torch::step(const std::string& workload) {
  return [this, workload] {
    std::fprintf(to_, "%s\n", workload.c_str());
    std::fflush(to_);
    return std::stod(answer());
  };
}

std::vector<Check> against_torch(const Burst& ours, const std::string& workload, double bound_as_installed,
                                 double bound_strongest) {
  Torch installed(Torch::Setting::as_installed), strongest(Torch::Setting::strongest);
  const Rounds rounds({ours, installed.step(workload), strongest.step(workload)});
  const auto check = [&](size_t which, const std::string& setting, double bound) {
    return Check{"times PyTorch " + installed.version() + ", " + setting,
                 duration(rounds.median(0)),
                 duration(rounds.median(which)),
                 middle(rounds.ratio(which, 0)),
                 Sense::at_least,
                 bound};
  };
  return {check(1, "as installed", bound_as_installed), check(2, "strongest", bound_strongest)};
}

}  // namespace weft::bench
