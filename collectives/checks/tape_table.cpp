// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/tape_table.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

#include "weft/collectives/checks/agreement.h"

namespace weft {
namespace {

using Cell = TapeTable::Cell;
using Line = TapeTable::Line;

struct Node {
  std::string op, place;
  bool collective;
  Cell cell;
};
using Nodes = std::vector<Node>;

std::string letters(Placements placements, int groups) {
  static constexpr char letter[] = "?CRIVP";  // in the order of the enumerators
  std::string result(1, letter[static_cast<int>(groups > 0 ? placements.in(0) : placements.elsewhere())]);
  for (int g = 1; g < groups; ++g) result += letter[static_cast<int>(placements.in(g))];
  return result;
}

std::string extents(const Shape& shape) {  // "256x128"
  std::string result;
  for (const int64_t extent : shape) result += (result.empty() ? "" : "x") + text(extent);
  return result.empty() ? "scalar" : result;
}

TapeTable::Excerpt excerpt(const TapeLog::Excerpt& x) {
  TapeTable::Excerpt result{extents(x.shape), ""};
  if (!x.values.defined()) return result;
  char digest[8];
  std::snprintf(digest, sizeof digest, " %04x", x.digest);
  result.brief += digest;
  const int64_t first = std::min(x.values.size(), TapeLog::first_values);
  for (const double value : x.values.slice(0, first).values()) result.brief += " " + text(value);
  if (x.values.size() == x.shape.size()) {
    const Tensor all = x.values.reshape(x.shape);
    result.whole = text(all).substr((text(x.dtype) + " " + text(x.shape) + " on " + text(all.device()) + " ").size());
  }
  return result;
}

Nodes nodes_of(const TapeLog::Notes& notes) {
  Nodes nodes;
  for (const TapeLog::Node& node : notes.nodes)
    nodes.push_back({node.op,
                     node.place,
                     node.collective,
                     {std::ssize(nodes), node.inputs, letters(node.placements, notes.groups), text(node.value.dtype),
                      excerpt(node.value), node.cotangent ? excerpt(*node.cotangent) : TapeTable::Excerpt()}});
  return nodes;
}

std::string packed(const Nodes& nodes) {
  std::string lines;
  for (const auto& [op, place, collective, cell] : nodes)
    for (const std::string& line :
         {op, place, std::string(collective ? "=" : ""), cell.inputs, cell.placement, cell.dtype, cell.value.brief,
          cell.value.whole, cell.cotangent.brief, cell.cotangent.whole})
      lines += line + '\n';
  return lines;
}

Nodes unpacked(const std::string& lines) {
  std::istringstream from(lines);
  const auto line = [&] {
    std::string line;
    std::getline(from, line);
    return line;
  };
  Nodes nodes;
  while (from.peek() != EOF)
    nodes.push_back({line(),
                     line(),
                     !line().empty(),
                     {std::ssize(nodes), line(), line(), line(), {line(), line()}, {line(), line()}}});
  return nodes;
}

bool are_alike(const Node& a, const Node& b) {
  if (a.op != b.op) return false;
  return a.collective ||
         (a.cell.number == b.cell.number && a.cell.inputs == b.cell.inputs && a.cell.placement == b.cell.placement);
}

TapeTable table(const std::vector<Nodes>& ranks) {
  std::vector<size_t> at(ranks.size());
  const auto next = [&](size_t r) { return at[r] < ranks[r].size() ? &ranks[r][at[r]] : nullptr; };
  TapeTable table;
  for (;;) {
    const Node* first = nullptr;
    for (size_t r = 0; r < ranks.size(); ++r)
      if (const Node* node = next(r); node && (!first || (first->collective && !node->collective))) first = node;
    if (!first) return table;
    Line& line = table.lines.emplace_back(Line{first->op, first->place, first->collective, {}});
    for (size_t r = 0; r < ranks.size(); ++r) {
      const Node* node = next(r);
      const bool here = node && are_alike(*node, *first);
      line.ranks.push_back(here ? std::optional(node->cell) : std::nullopt);
      if (here) ++at[r];
    }
  }
}

}  // namespace

TapeTable table_of(const TapeLog::Notes& mine) { return table({nodes_of(mine)}); }

TapeTable table_of(const TapeLog::Notes& mine, Communicator& comm, Site site) {
  std::vector<Nodes> ranks;
  for (const std::string& lines : all_texts(packed(nodes_of(mine)), comm, site)) ranks.push_back(unpacked(lines));
  return table(ranks);
}

void TapeRecord::add(Tape& tape) {
  if (!on) return;
  auto notes = TapeLog::keep(tape);
  if (!notes) return;
  tapes_.push_back(std::move(notes));
  if (observe) observe(tape);
}

std::vector<TapeTable> TapeRecord::take(Communicator& comm, Site site) {
  std::vector<TapeTable> tables;
  for (const auto& notes : std::exchange(tapes_, {})) tables.push_back(table_of(*notes, comm, site));
  return tables;
}

}  // namespace weft
