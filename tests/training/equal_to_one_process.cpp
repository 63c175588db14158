// SPDX-License-Identifier: Apache-2.0
// Prints the table "equal to one process": each training, and the largest relative difference of any weight after the
// last step, for ranks as threads,
//
//   equal_to_one_process
//   mpiexec -n 3 equal_to_one_process
//
// or as processes, which are also compared with the same number of threads; `processes` requests that for one process
// too.
#include <cstdio>

#include "tests/training/training_table.h"
#include "weft/collectives/transports/factory.h"

using namespace weft;

namespace {

double between_threads_and_processes(Communicator& processes) {
  double largest = 0;
  for (const TrainingCase& c : training_cases()) {
    const Weights mine = trained(c, processes);
    double here = 0;
    run_ranks(processes.size(), [&](Communicator& threads) {
      const Weights theirs = trained(c, threads);
      if (threads.rank() == processes.rank()) here = difference(theirs, mine);
    });
    largest = std::max(largest, here);
  }
  return worst(largest, processes);
}

double on_threads(const TrainingRow& row, int ranks) {
  double result = 0;
  run_ranks(ranks, [&](Communicator& comm) {
    const double largest = row.difference(comm);
    if (comm.rank().value == 0) result = largest;
  });
  return result;
}

class Table {
 public:
  Table(bool prints, std::initializer_list<int> ranks) : prints_(prints) {
    if (!prints_) return;
    std::printf("%-38s", "after 20 steps in f64; ranks:");
    for (const int n : ranks) std::printf("%10d", n);
    std::printf("\n");
  }
  void begin(const std::string& name) const {
    if (prints_) std::printf("%-38s", name.c_str());
  }
  void cell(double difference, double limit) {
    good_ = good_ && difference <= limit;
    if (prints_) std::printf("%10.1e%s", difference, difference <= limit ? "" : "!");
    std::fflush(stdout);
  }
  void end() const {
    if (prints_) std::printf("\n");
  }
  int verdict() const {
    if (prints_) std::printf(good_ ? "All is equal.\n" : "Where there is a ! it is too much.\n");
    return good_ ? 0 : 1;
  }

 private:
  const bool prints_;
  bool good_ = true;
};

int on_processes(Session& session) {
  Communicator comm(connect(session));
  Table table(session.rank() == 0, {comm.size()});
  for (const TrainingRow& row : training_table()) {
    table.begin(row.name);
    table.cell(row.difference(comm), row.limit);
    table.end();
  }
  table.begin("bits: threads and processes");
  table.cell(between_threads_and_processes(comm), 0);
  table.end();
  return table.verdict();
}

int on_threads() {
  const auto ranks = {1, 2, 3, 4, 8};
  Table table(true, ranks);
  for (const TrainingRow& row : training_table()) {
    table.begin(row.name);
    for (const int n : ranks) table.cell(on_threads(row, n), row.limit);
    table.end();
  }
  return table.verdict();
}

}  // namespace

int main(int argc, char** argv) {
  return run_session(argc, argv, [&](Session& session) {
    const std::string asked = argc > 1 ? argv[1] : "";
    if (argc > 2 || (argc > 1 && asked != "processes"))
      session.end(exit_codes::usage,
                  "usage: equal_to_one_process for ranks as threads, mpiexec -n N equal_to_one_process for processes");
    return session.size() > 1 || asked == "processes" ? on_processes(session) : on_threads();
  });
}
