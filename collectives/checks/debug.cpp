// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/debug.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "weft/collectives/checks/agreement.h"
#include "weft/collectives/checks/debug_finite.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/transports/environment.h"

namespace weft {
namespace {

bool equal_values(Placement placement) {
  return placement == Placement::replicated || placement == Placement::invariant || placement == Placement::constant;
}

std::string placed(int64_t node, bool tracked) {
  return node < 0 ? "before any node" : (tracked ? "node " : "after node ") + std::to_string(node);
}

// The digest of a list in three words: its length, the hash of its kinds, and the hash of its values.
constexpr int digest_words = 3;
template <class List> std::array<uint64_t, digest_words> digest(const List& list) {
  std::array<uint64_t, digest_words> result{list.size(), 0, 0};
  for (const auto& entry : list) {
    result[1] = 31 * result[1] + checksum(entry.kind);
    result[2] = 31 * result[2] + entry.checksum;
  }
  return result;
}

}  // namespace

DebugRanks::DebugRanks(Tape& tape, Communicator& comm) : tape_(tape), comm_(comm), group_(declare_group(tape, comm)) {
  tape.observe(*this);
}

void DebugRanks::set_last(const Var& x, const std::string& name) {
  settle();
  if (walking_ > 0 && !tape_.recomputing()) return;  // backward computes parts of gradients
  last_ = {x.value(), x.placements(), tape_.place_of(x), x.tracked(), false, name, "", {}};
}

void DebugRanks::watched(const Var& leaf, const Parameter* parameter) {
  settle();
  if (!parameter) return;  // each rank's own
  std::string name = "parameter '" + parameter->name + "'";
  const auto has_name = [&](const Entry& entry) { return entry.kind.starts_with(name + ","); };
  while (std::ranges::any_of(parameters_, has_name)) name += " again";  // another parameter of the same name
  set_last(leaf, name);
  last_.parameter = true;
}

void DebugRanks::computed(const Var& result, const Op& op, std::span<const Var* const> inputs) {
  set_last(result, op.name);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Var& input = *inputs[i];
    if (!input.defined()) continue;
    const Placement placement = input.placements().in(group_);
    last_.origin += (last_.origin.empty() ? ", made of " : ", ") + text(placement);
    if (!input.tape() && equal_values(placement)) last_.constants.emplace_back(i + 1, input.value());
  }
  if (op.replay == Replay::always && !call_.empty()) last_.origin += ", " + std::exchange(call_, {});
}

void DebugRanks::placement_changed(const Var& x) {
  const bool is_last = last_.value.defined() && last_.node == tape_.place_of(x) && last_.tracked == x.tracked() &&
                       last_.value.shape() == x.shape() && last_.value.data() == x.value().data();
  if (!is_last) set_last(x, "a value declared by the program");
  last_.placements = x.placements();
}

// Constants are checked only if the result of their op is to be equal: in Varying values they may differ.
void DebugRanks::settle() {
  const Last last = std::exchange(last_, {});
  const Placement placement = last.placements.in(group_);
  if (!last.value.defined() || !(equal_values(placement) || placement == Placement::partial)) return;
  const std::string place = placed(last.node, last.tracked);
  List& list = last.parameter ? parameters_ : walking_ > 0 || placement == Placement::partial ? loose_ : strict_;
  for (const auto& [number, constant] : last.constants)
    add(list, "input " + std::to_string(number) + " of " + last.name, Placement::constant, place, constant);
  if (equal_values(placement)) add(list, last.name, placement, place + last.origin, last.value);
}

void DebugRanks::add(List& list, const std::string& name, Placement placement, const std::string& place,
                     const Tensor& value) {
  const std::string kind = name + ", " + text(placement) + " " + text(value.dtype()) + " " + text(value.shape());
  list.push_back({kind, place, value, checksum(value)});
}

void DebugRanks::walk_begins(bool on_all_ranks) {
  settle();
  if (on_all_ranks) compare();
  ++walking_;
}

void DebugRanks::arrived(const Var& gradient, const std::string& of, int64_t node, Placements placements) {
  settle();
  const Placement placement = placements.in(group_);
  if (placement == Placement::invariant || placement == Placement::partial)
    add(loose_, "gradient of " + of, placement, placed(node, true), gradient.value());
}

void DebugRanks::walk_ends(bool on_all_ranks) {
  settle();
  --walking_;
  if (on_all_ranks) compare();
}

void DebugRanks::collective_begins(const void* group, const std::string& place) {
  if (group != &comm_) return;
  compare();
  call_ = place;
}

// Costs one small all_gather if all values are equal.
void DebugRanks::compare() {
  settle();
  const List parameters = std::exchange(parameters_, {}), strict = std::exchange(strict_, {}),
             loose = std::exchange(loose_, {});
  Tensor mine({1, 3 * digest_words}, DType::i64);
  auto* to = mine.mutate<uint64_t>();
  for (const List* list : {&parameters, &strict, &loose}) to = std::ranges::copy(digest(*list), to).out;
  const Tensor all = comm_.all_gather(mine, Site::here("debug"));
  const auto alike = [&](int first_word, int last_word) {
    const auto* of_first = all.data<uint64_t>();
    for (int r = 1; r < comm_.size(); ++r)
      for (int i = first_word; i < last_word; ++i)
        if (of_first[3 * digest_words * r + i] != of_first[i]) return false;
    return true;
  };
  if (alike(0, 3 * digest_words)) return;
  compare_by_name(parameters, gather(parameters));
  compare_in_order(strict, gather(strict));
  if (alike(2 * digest_words, 3 * digest_words - 1)) compare_in_order(loose, gather(loose));
}

DebugRanks::Digests DebugRanks::gather(const List& list) {
  Tensor mine({static_cast<int64_t>(list.size()), 2}, DType::i64);
  auto* words = mine.mutate<uint64_t>();
  for (const Entry& entry : list) {
    *words++ = checksum(entry.kind);
    *words++ = entry.checksum;
  }
  const Communicator::Rows sizes = comm_.rows_of(mine.shape()[0], Site::here("debug"));
  const Tensor all = comm_.all_gather_v(mine, sizes, Site::here("debug"));
  Digests result;
  const auto* next = all.data<uint64_t>();
  for (const int64_t size : sizes)
    for (auto& digests = result.emplace_back(); static_cast<int64_t>(digests.size()) < size; next += 2)
      digests.push_back({next[0], next[1]});
  return result;
}

void DebugRanks::compare_by_name(const List& list, const Digests& all) {
  for (size_t r = 0; r < all.size(); ++r)
    for (const Digest& mine : all[r])
      for (size_t other = r + 1; other < all.size(); ++other)
        for (const Digest& others : all[other])
          if (others.kind == mine.kind && others.checksum != mine.checksum)
            report_difference(list, mine.kind, r, other);
}

void DebugRanks::compare_in_order(const List& list, const Digests& all) {
  for (size_t i = 0;; ++i) {
    const bool any = std::ranges::any_of(all, [&](const auto& digests) { return i < digests.size(); });
    if (!any) return;
    for (size_t r = 0; r < all.size(); ++r) {
      if (i >= all[r].size() || i >= all[0].size() || all[r][i].kind != all[0][i].kind) report_part(list, i);
      if (all[r][i].checksum != all[0][i].checksum) report_difference({list[i]}, all[0][i].kind, 0, r);
    }
  }
}

void DebugRanks::report_part(const List& list, size_t entry) {
  const std::string mine =
      entry < list.size() ? list[entry].kind + " (" + list[entry].place + ")" : "nothing more of the kind";
  const std::vector<std::string> all = all_texts(mine, comm_, Site::here("debug"));
  std::string ranks;
  for (size_t r = 0; r < all.size(); ++r)
    ranks += "\n  rank " + text(comm_.global({static_cast<int>(r)})) + ": " + all[r];
  fail({"debug: the ranks' programs part where values are typed equal; what only some ranks compute, in a branch of ",
        "their own, must be Varying (as_varying)", ranks});
}

void DebugRanks::report_difference(const List& list, uint64_t kind, size_t first, size_t other) {
  const auto mine = std::ranges::find(list, kind, [](const Entry& s) { return checksum(s.kind); });
  const bool here = mine != list.end();
  const std::string what = here ? mine->kind + " (" + mine->place + ")" : "";
  const std::vector<std::string> all = all_texts(what, comm_, Site::here("debug"));
  const GroupRank of_first{static_cast<int>(first)}, of_other{static_cast<int>(other)};
  fail({"debug: ", all[first], " should be equal on all ranks, but ",
        first_difference(here ? mine->value : Tensor(), of_first, of_other, comm_, Site::here("debug"))});
}

bool debug_is_asked() {
  const char* given = std::getenv("WEFT_DEBUG");
  return given && switch_in("WEFT_DEBUG", given);
}

void debug_if_asked(Tape& tape, Communicator& comm) {
  declare_group(tape, comm);  // as DebugRanks does, because gradients must not depend on WEFT_DEBUG
  const bool present = std::ranges::any_of(tape.observers(), [&](const Tape::Observer* observer) {
    const auto* debug = dynamic_cast<const DebugRanks*>(observer);
    return debug && debug->is_of(comm);
  });
  if (!debug_is_asked() || present) return;
  tape.own(std::make_unique<DebugFinite>(tape, comm));
  tape.own(std::make_unique<DebugRanks>(tape, comm));
}

}  // namespace weft
