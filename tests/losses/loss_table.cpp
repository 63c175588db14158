// SPDX-License-Identifier: Apache-2.0
// Prints, for every loss and quantizer in each of its variants, how far its gradients on the ranks of a group are from
// those of one process with the whole batch: the largest difference, relative to the largest element. The next column
// is that of other libraries on three ranks: as stored, or as tools/oracles/run_losses has just measured it.
//
//   loss_table [BUILD FOLDER/upstream]
#include <cstdio>

#include "tests/losses/loss_checks.h"
#include "tests/losses/upstream.h"

using namespace weft;

namespace {

constexpr double limit = LossComparison::limit;
constexpr int groups[] = {1, 2, 3, 5, 8};

double on_ranks(const LossComparison& comparison, int ranks) {
  double result = 0;
  run_ranks(ranks, [&](Communicator& comm) {
    const auto [value, gradient] = comparison(comm);
    if (comm.rank().value == 0) result = std::max(value, gradient);
  });
  return result;
}

bool print(const LossCase& c, const Upstream& upstream) {
  const LossComparison comparison(c);
  bool good = true;
  std::printf("%-24s %-30s", c.name.c_str(), c.variant.c_str());
  for (const int ranks : groups) {
    const double off = on_ranks(comparison, ranks);
    std::printf("%10.1e%s", off, off <= limit ? " " : "!");
    std::fflush(stdout);
    good = good && off <= limit;
  }
  std::printf("  %s\n", upstream.difference(c.name, c.variant).c_str());
  return good;
}

}  // namespace

int main(int arguments, char** argument) {
  const Upstream upstream = arguments > 1 ? Upstream(argument[1]) : Upstream::stored();
  std::printf("%-55s", "f64, uneven and empty shards; ranks:");
  for (const int ranks : groups) std::printf("%10d ", ranks);
  std::printf("  other libraries, on 3\n");
  bool good = true;
  for (const LossCase* c : LossCase::all()) good = print(*c, upstream) && good;
  std::printf(good ? "All is equal.\n" : "Where there is a ! it is too much.\n");
  return good ? 0 : 1;
}
