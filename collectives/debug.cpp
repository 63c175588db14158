#include "collectives/debug.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "collectives/agreement.h"
#include "collectives/debug_finite.h"
#include "collectives/spreads.h"

namespace weft {
namespace {

bool equal_values(Spread spread) {
  return spread == Spread::replicated || spread == Spread::invariant || spread == Spread::same;
}

std::string placed(int64_t node, bool tracked) {
  return node < 0 ? "before any node" : (tracked ? "node " : "after node ") + std::to_string(node);
}

// What a list says, in three words: how long it is, of what, and with which values.
constexpr int digest_words = 3;
template <class List> std::array<uint64_t, digest_words> digest(const List& list) {
  std::array<uint64_t, digest_words> result{list.size(), 0, 0};
  for (const auto& seen : list) {
    result[1] = 31 * result[1] + checksum(seen.kind);
    result[2] = 31 * result[2] + seen.checksum;
  }
  return result;
}

}  // namespace

DebugRanks::DebugRanks(Tape& tape, Communicator& comm)
    : tape_(tape), comm_(comm), group_((spread_over(tape, comm), tape.group(&comm))) {
  tape.observe(*this);
}

void DebugRanks::hold(const Var& x, const std::string& name) {
  settle();
  if (walking_ > 0 && !tape_.recomputing()) return;  // what a walk computes are parts of gradients
  last_ = {x.value(), x.spreads(), tape_.place_of(x), x.tracked(), false, name, "", {}};
}

void DebugRanks::watched(const Var& leaf, const Parameter& parameter) {
  settle();
  std::string name = "parameter '" + parameter.name + "'";
  const auto begins_so = [&](const Seen& seen) { return seen.kind.starts_with(name + ","); };
  while (std::ranges::any_of(parameters_, begins_so)) name += " again";  // another one of the same name
  hold(leaf, name);
  last_.parameter = true;
}

void DebugRanks::computed(const Var& result, const Op& op, std::span<const Var* const> inputs) {
  hold(result, op.name);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Var& input = *inputs[i];
    if (!input.defined()) continue;
    const Spread spread = input.spreads().in(group_);
    last_.origin += (last_.origin.empty() ? ", made of " : ", ") + text(spread);
    if (!input.tape() && equal_values(spread)) last_.constants.emplace_back(i + 1, input.value());
  }
  if (op.replay == Replay::always && !meeting_.empty()) last_.origin += ", " + std::exchange(meeting_, {});
}

void DebugRanks::respread(const Var& x) {
  const bool is_last = last_.value.defined() && last_.node == tape_.place_of(x) && last_.tracked == x.tracked() &&
                       last_.value.shape() == x.shape() && last_.value.data() == x.value().data();
  if (!is_last) hold(x, "a value declared by the program");
  last_.spreads = x.spreads();
}

// A constant is only as good as what is made of it: one that differs does no harm to Varying values.
void DebugRanks::settle() {
  const Last last = std::exchange(last_, {});
  const Spread spread = last.spreads.in(group_);
  if (!last.value.defined() || !(equal_values(spread) || spread == Spread::partial)) return;
  const std::string place = placed(last.node, last.tracked);
  List& list = last.parameter ? parameters_ : walking_ > 0 || spread == Spread::partial ? loose_ : strict_;
  for (const auto& [number, constant] : last.constants)
    see(list, "input " + std::to_string(number) + " of " + last.name, Spread::same, place, constant);
  if (equal_values(spread)) see(list, last.name, spread, place + last.origin, last.value);
}

void DebugRanks::see(List& list, const std::string& name, Spread spread, const std::string& place,
                     const Tensor& value) {
  const std::string kind = name + ", " + text(spread) + " " + text(value.dtype()) + " " + text(value.shape());
  list.push_back({kind, place, value, checksum(value)});
}

void DebugRanks::walk_begins(bool on_all_ranks) {
  settle();
  if (on_all_ranks) compare();
  ++walking_;
}

void DebugRanks::arrived(const Var& gradient, const std::string& of, int64_t node, Spreads spreads) {
  settle();
  const Spread spread = spreads.in(group_);
  if (spread == Spread::invariant || spread == Spread::partial)
    see(loose_, "gradient of " + of, spread, placed(node, true), gradient.value());
}

void DebugRanks::walk_ends(bool on_all_ranks) {
  settle();
  --walking_;
  if (on_all_ranks) compare();
}

void DebugRanks::meeting(const void* group, const std::string& place) {
  if (group != &comm_) return;
  compare();
  meeting_ = place;
}

// One small exchange if all is well.
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

DebugRanks::Marks DebugRanks::gather(const List& list) {
  Tensor mine({static_cast<int64_t>(list.size()), 2}, DType::i64);
  auto* words = mine.mutate<uint64_t>();
  for (const Seen& seen : list) {
    *words++ = checksum(seen.kind);
    *words++ = seen.checksum;
  }
  const Communicator::Rows sizes = comm_.rows_of(mine.shape()[0], Site::here("debug"));
  const Tensor all = comm_.all_gather_v(mine, sizes, Site::here("debug"));
  Marks result;
  const auto* next = all.data<uint64_t>();
  for (const int64_t size : sizes)
    for (auto& marks = result.emplace_back(); static_cast<int64_t>(marks.size()) < size; next += 2)
      marks.push_back({next[0], next[1]});
  return result;
}

void DebugRanks::compare_by_name(const List& list, const Marks& all) {
  for (size_t r = 0; r < all.size(); ++r)
    for (const Mark& mark : all[r])
      for (size_t other = r + 1; other < all.size(); ++other)
        for (const Mark& others : all[other])
          if (others.kind == mark.kind && others.checksum != mark.checksum)
            report_difference(list, mark.kind, r, other);
}

void DebugRanks::compare_in_order(const List& list, const Marks& all) {
  for (size_t i = 0;; ++i) {
    const bool any = std::ranges::any_of(all, [&](const auto& marks) { return i < marks.size(); });
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
  const auto mine = std::ranges::find(list, kind, [](const Seen& s) { return checksum(s.kind); });
  const bool here = mine != list.end();
  const std::string what = here ? mine->kind + " (" + mine->place + ")" : "";
  const std::vector<std::string> all = all_texts(what, comm_, Site::here("debug"));
  const GroupRank of_first{static_cast<int>(first)}, of_other{static_cast<int>(other)};
  fail({"debug: ", all[first], " should be equal on all ranks, but ",
        first_difference(here ? mine->value : Tensor(), of_first, of_other, comm_, Site::here("debug"))});
}

bool debug_is_asked() {
  const char* given = std::getenv("WEFT_DEBUG");
  const std::string asked = given ? given : "0";
  require(asked == "0" || asked == "1", "WEFT_DEBUG: 0 or 1, not '", asked, "'");
  return asked == "1";
}

void debug_if_asked(Tape& tape, Communicator& comm) {
  spread_over(tape, comm);  // as a DebugRanks does: gradients must not depend on whether there is one
  const bool there = std::ranges::any_of(tape.observers(), [&](const Tape::Observer* observer) {
    const auto* debug = dynamic_cast<const DebugRanks*>(observer);
    return debug && debug->is_of(comm);
  });
  if (!debug_is_asked() || there) return;
  tape.own(std::make_unique<DebugFinite>(tape, comm));
  tape.own(std::make_unique<DebugRanks>(tape, comm));
}

}  // namespace weft
