// SPDX-License-Identifier: Apache-2.0
// P6-ranks and P10 to P13: several ranks, compared with MPI's own collectives and with one rank. The measurement is in
// collectives_child.cpp, a program of several ranks. This program launches it several times, since the cores on which
// the ranks of one launch happen to run change the result by a factor.
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/measuring/goal.h"
#include "weft/engine/tensor/error.h"

namespace weft::bench {
namespace {

namespace fs = std::filesystem;

constexpr int launches = 5;
constexpr int no_launcher = 127, wrong_launcher = 90;

std::string launcher() {
  if (const char* chosen = std::getenv("WEFT_MPIEXEC")) return chosen;
  const char* path = std::getenv("PATH");
  for (const char* name : {"mpiexec.mpich", "mpiexec"}) {
    std::istringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');)
      if (const std::string file = folder + "/" + name; access(file.c_str(), X_OK) == 0) return file;
  }
  throw Unavailable{"there is no mpiexec; name one in WEFT_MPIEXEC"};
}

fs::path child_program() {
  const fs::path child = fs::read_symlink("/proc/self/exe").parent_path() / "collectives_child";
  if (!fs::exists(child)) throw Unavailable{"this build has no MPI"};
  return child;
}

void need_two_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) < 2)
    throw Unavailable{"one core is not enough"};
}

// Launches the ranks and returns what they print.
std::istringstream launch(const char* goal, int ranks) {
  const std::string mpiexec = launcher(), child = child_program(), count = std::to_string(ranks);
  int up[2];
  if (pipe2(up, O_CLOEXEC) != 0) throw Unavailable{"no pipe to a child process"};
  const pid_t job = fork();
  if (job == 0) {
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "true", 1);  // Open MPI refuses more ranks than cores otherwise
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);         // mpiexec would read the terminal
    dup2(up[1], STDOUT_FILENO);
    execl(mpiexec.c_str(), mpiexec.c_str(), "-n", count.c_str(), child.c_str(), goal, nullptr);
    _exit(no_launcher);
  }
  close(up[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(up[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(up[0]);
  int status = 0;
  waitpid(job, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == no_launcher || code == wrong_launcher) throw Unavailable{mpiexec + " cannot start this build's ranks"};
  require(code == 0, goal, " on ", ranks, " ranks ended with status ", code);
  return std::istringstream(text);
}

struct Bound {
  const char* kind;
  Sense sense;
  double value;
};
constexpr Bound bounds[] = {
    {"private", Sense::at_least, 0.95}, {"arena", Sense::at_least, 3},    {"crowd", Sense::at_least, 10},
    {"scaling", Sense::at_least, 0.93}, {"loss", Sense::at_least, 0.9},   {"allocations", Sense::at_most, 0},
    {"cost", Sense::at_most, 200},      {"latency", Sense::at_most, 1.3}, {"shown", Sense::shown, 0}};

Check check(const nlohmann::json& line) {
  const std::string kind = line["kind"];
  for (const Bound& bound : bounds)
    if (kind == bound.kind) return {line["what"], "", "", {}, bound.sense, bound.value};
  throw Error("collectives_child printed an unknown kind of number: " + kind);
}

struct Series {
  Check check;
  std::vector<double> ours, theirs, values;  // one per launch
};

std::vector<Check> on_ranks(const char* goal, int ranks, const char* library = "") {
  need_two_cores();
  std::vector<Series> series;
  for (int i = 0; i < launches; ++i) {
    std::istringstream output = launch(goal, ranks);
    std::string text;
    std::getline(output, text);
    if (text.find(library) == std::string::npos)
      throw Unavailable{"it is about " + std::string(library) + ", and this is " + text};
    for (size_t which = 0; std::getline(output, text); ++which) {
      const auto line = nlohmann::json::parse(text);
      if (i == 0) series.push_back({check(line), {}, {}, {}});
      series.at(which).ours.push_back(line["ours"]);
      series.at(which).theirs.push_back(line["theirs"]);
      series.at(which).values.push_back(line["value"]);
    }
  }
  std::vector<Check> checks;
  for (Series& each : series) {
    const double theirs = middle(each.theirs).median;
    each.check.ours = each.ours[0] > 0 ? duration(middle(each.ours).median) : "";
    each.check.theirs = theirs > 0 ? duration(theirs) : "";
    each.check.value = middle(each.values);
    checks.push_back(each.check);
  }
  return checks;
}

const Goal p10{"P10", "all_reduce of 2 ranks, 4 B to 64 MB, against MPI_Allreduce (values: how many times faster)",
               [] { return on_ranks("P10", 2); }};

const Goal p10_messages{"P10-messages",
                        "all_reduce of 8 B on 2 ranks connected by TCP: the time over that of MPI's own",
                        [] { return on_ranks("P10-messages", 2); }};

const Goal p12{
    "P12", "a contrastive step on 2 ranks: one rank's time alone over the time of both (784-512-128, 2 x 256 views)",
    [] { return on_ranks("P12", 2); }};

const Goal p6_ranks{"P6-ranks",
                    "the loss of CLIP (4096 pairs, 128 wide) on 2 ranks: half of one rank's time alone over theirs",
                    [] { return on_ranks("P6", 2); }};

const Goal p13_ranks{"P13-ranks", "system allocations per training step after warm-up, on 2 ranks",
                     [] { return on_ranks("P13", 2); }};

const Goal p11{"P11", "4 and 8 ranks on two cores: 0.5 ms of work and all_reduce of 64 KB, against MPICH", [] {
                 std::vector<Check> checks = on_ranks("P11", 4, "MPICH");
                 for (const Check& check : on_ranks("P11", 8, "MPICH")) checks.push_back(check);
                 return checks;
               }};

}  // namespace
}  // namespace weft::bench
