// SPDX-License-Identifier: Apache-2.0
// Makes Weft print the messages that the documents quote.
#include <algorithm>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>

#include "tests/documents/mistakes.h"
#include "tests/documents/test_documents.h"
#include "tests/losses/loss_checks.h"
#include "tests/support/scratch_folder.h"
#include "weft/collectives/checks/debug.h"
#include "weft/collectives/run_ranks.h"
#include "weft/data/files/checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::documents {
namespace {

std::string with_single_spaces(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n';
    if (!space || (!result.empty() && result.back() != ' ')) result += space ? ' ' : c;
  }
  return result;
}

std::string with_ranks_in_order(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  if (!lines.empty()) std::sort(lines.begin() + 1, lines.end());
  std::string result;
  for (const std::string& line : lines) result += line + "\n";
  return result.substr(0, result.size() - 1);
}

// Collects the errors of ranks that make a mistake, each once.
class Listener {
 public:
  void run(int ranks, const std::function<void(Rank&)>& make, std::chrono::milliseconds deadline = default_deadline()) {
    const auto body = [&](std::unique_ptr<Transport> transport) {
      Communicator comm(std::move(transport));
      Rank rank{comm};
      try {
        make(rank);
      } catch (const std::exception& error) {
        hear(error.what());
        throw;
      }
    };
    try {
      run_ranks(ranks, body, deadline);
    } catch (const std::exception& error) {
      hear(error.what());
    }
  }
  // Also as printed if another rank is the first to notice.
  void hear(const std::string& what) {
    static const std::regex others(R"(rank \d+ failed first: )");
    const std::lock_guard lock(mutex_);
    said_.insert(with_single_spaces(what));
    said_.insert(with_single_spaces(with_ranks_in_order(std::regex_replace(what, others, ""))));
  }
  std::vector<std::string> said() const { return {said_.begin(), said_.end()}; }

 private:
  std::mutex mutex_;
  std::set<std::string> said_;
};

// CONTRIBUTING's loss, with the mistake that it proposes to try.
void compare_a_mean_of_own_samples(Listener& listener) {
  const LossCase wrong{"view distance",
                       "",
                       {{{3}, {3}}},
                       [](const LossCase::Inputs& x, Communicator& comm) {
                         const Var &first = x.rows[0], &second = x.rows[1];
                         const double count = std::max(1.0, static_cast<double>(first.shape()[0]));
                         return as_partial(sum(square(first - second)) / count, comm);
                       },
                       [](const LossCase::Inputs& x) { return mean(sum(square(x.rows[0] - x.rows[1]), 1)); }};
  listener.run(2, [&](Rank& rank) { LossComparison(wrong).check(rank.comm); });
}

std::string header_of_a_checkpoint() {
  const ScratchFolder folder;
  const NamedTensors state = {{"encoder.weight", Tensor::zeros({2})}, {"encoder.weight.velocity", Tensor::zeros({2})}};
  return contents(save_checkpoint(folder.path, 120, state, {{"seed", "42"}})).substr(8);
}

}  // namespace

std::vector<std::string> said() {
  Listener listener;
  for (const Mistake& mistake : mistakes) {
    const auto debugged = [&](Rank& rank) {
      DebugRanks debug(rank.tape, rank.comm);
      mistake.make(rank);
      debug.compare();
    };
    listener.run(mistake.ranks, mistake.debugged ? debugged : std::function<void(Rank&)>(mistake.make),
                 mistake.deadline);
  }
  compare_a_mean_of_own_samples(listener);
  listener.hear(header_of_a_checkpoint());
  return listener.said();
}

}  // namespace weft::documents
