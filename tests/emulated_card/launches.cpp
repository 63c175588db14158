// SPDX-License-Identifier: Apache-2.0
// Whether there is an order of all operations that every card follows. In a cycle of "launched before" each card waits
// for what another launches later, which ends only if all of them fit on the cards at the same time.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "tests/emulated_card/communicator.h"

namespace weft::emulated {
namespace {

struct Launches {
  std::mutex mutex;
  std::map<int, Rendezvouses> last;                               // of each card
  std::map<std::shared_ptr<Rendezvous>, Rendezvouses> next_ones;  // on any card
};

bool leads_to(const Launches& launches, const std::shared_ptr<Rendezvous>& from, const Rendezvouses& any_of) {
  std::set<std::shared_ptr<Rendezvous>> seen{from};
  for (Rendezvouses open{from}; !open.empty();) {
    const auto at = open.back();
    open.pop_back();
    if (std::find(any_of.begin(), any_of.end(), at) != any_of.end()) return true;
    if (const auto found = launches.next_ones.find(at); found != launches.next_ones.end())
      for (const auto& next : found->second)
        if (seen.insert(next).second) open.push_back(next);
  }
  return false;
}

}  // namespace

bool launch_in_order(int card, const Rendezvouses& operations) {
  static Launches& launches = *new Launches;
  const std::lock_guard lock(launches.mutex);
  const Rendezvouses before = std::exchange(launches.last[card], operations);
  bool in_order = true;
  for (const auto& each : operations) in_order = in_order && !leads_to(launches, each, before);
  for (const auto& each : before)
    launches.next_ones[each].insert(launches.next_ones[each].end(), operations.begin(), operations.end());
  return in_order;
}

}  // namespace weft::emulated
