// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/print_tapes.h"

#include <algorithm>
#include <iostream>
#include <sstream>

#include "weft/collectives/checks/agreement.h"

namespace weft {
namespace {

constexpr size_t page_width = 100, label_width = 30, most_columns = 5;

// A node as text, as ranks tell it each other.
struct NodeText {
  std::string label, op, value, cotangent;
  bool collective = false;
};
using TapeText = std::vector<NodeText>;
using Line = std::vector<const NodeText*>;  // by rank; null for ranks without this node

// Ranks beside each other. If there are more than fit, blocks of them are below each other.
size_t columns(size_t ranks) {
  const size_t blocks = (ranks + most_columns - 1) / most_columns;
  return (ranks + blocks - 1) / blocks;
}
size_t cell_width(size_t ranks) { return (page_width - label_width) / columns(ranks); }

// One letter for each group that the tape knows, in the order in which it met them.
std::string letters(Placements placements, int groups) {
  static constexpr char letter[] = "?CRIVP";  // in the order of the enumerators
  std::string result(1, letter[static_cast<int>(groups > 0 ? placements.in(0) : placements.elsewhere())]);
  for (int g = 1; g < groups; ++g) result += letter[static_cast<int>(placements.in(g))];
  return result;
}

std::string cut(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, std::min(width, text.find_last_of(' ', width)));
}

std::string padded(const std::string& text, size_t width, char fill = ' ') {
  std::string result = cut(text, width - 1);
  if (result.size() + 1 < width) (result += ' ').resize(width - 1, fill);
  return result + ' ';
}

std::string cell(const TapeLog::Excerpt& x, size_t width) {
  return !x.whole.empty() && x.whole.size() < width ? x.whole : cut(x.brief, width - 1);
}

TapeText texts_of(const Tape& tape, size_t ranks) {
  const size_t width = cell_width(ranks);
  TapeText nodes;
  for (const TapeLog::Entry& node : TapeLog::entries(tape)) {
    const std::string placement = letters(node.placements, tape.groups());
    const std::string what = text(nodes.size()) + ' ' + node.op + node.inputs;
    const char fill = node.collective ? '=' : ' ';
    nodes.push_back({padded(what, label_width - placement.size() - 1, fill) + placement, node.op,
                     cell(node.value, width), cell(node.cotangent, width), node.collective});
  }
  return nodes;
}

// In the order in which nodes came: what ranks do by themselves, until all have come to a collective. Ranks share the
// line of a collective, and those of nodes with equal labels.
std::vector<Line> lines_of(const std::vector<TapeText>& ranks) {
  std::vector<size_t> at(ranks.size());
  const auto next = [&](size_t r) { return at[r] < ranks[r].size() ? &ranks[r][at[r]] : nullptr; };
  std::vector<Line> lines;
  for (;;) {
    const NodeText* first = nullptr;
    for (size_t r = 0; r < ranks.size(); ++r)
      if (const NodeText* node = next(r); node && (!first || (first->collective && !node->collective))) first = node;
    if (!first) return lines;
    Line& line = lines.emplace_back(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r)
      if (const NodeText* node = next(r);
          node && (node->label == first->label || (node->collective && node->op == first->op)))
        line[r] = node, ++at[r];
  }
}

// The columns of ranks [begin, end).
std::string block(const std::vector<Line>& lines, size_t begin, size_t end, size_t width) {
  std::string block;
  const auto add = [&](const std::string& label, char fill, const auto& cell) {
    block += padded(label, label_width, fill);
    for (size_t rank = begin; rank < end; ++rank) block += padded(cell(rank), width, fill);
    block.erase(block.find_last_not_of(' ') + 1);
    block += '\n';
  };
  add("node", ' ', [](size_t rank) { return "rank " + text(rank); });
  for (const Line& line : lines) {
    const auto end_here = line.begin() + static_cast<ptrdiff_t>(end);
    const auto here =
        std::find_if(line.begin() + static_cast<ptrdiff_t>(begin), end_here, [](auto node) { return node; });
    if (here == end_here) continue;
    const auto cells = [&](std::string NodeText::*which) {
      return [&line, which](size_t rank) { return line[rank] ? line[rank]->*which : ""; };
    };
    add((*here)->label, (*here)->collective ? '=' : ' ', cells(&NodeText::value));
    if (!(*here)->cotangent.empty()) add("   cotangent", ' ', cells(&NodeText::cotangent));
  }
  return block;
}

std::string table(const std::vector<TapeText>& ranks) {
  const std::vector<Line> lines = lines_of(ranks);
  const size_t step = columns(ranks.size()), width = cell_width(ranks.size());
  std::string table;
  for (size_t begin = 0; begin < ranks.size(); begin += step)
    table += (begin > 0 ? "\n" : "") + block(lines, begin, std::min(begin + step, ranks.size()), width);
  return table;
}

std::string packed(const TapeText& nodes) {
  std::string lines;
  for (const NodeText& node : nodes)
    lines += node.label + '\n' + node.op + '\n' + node.value + '\n' + node.cotangent + '\n' +
             (node.collective ? "=\n" : "\n");
  return lines;
}

TapeText unpacked(const std::string& lines) {
  std::istringstream from(lines);
  const auto line = [&] {
    std::string line;
    std::getline(from, line);
    return line;
  };
  TapeText nodes;
  while (from.peek() != EOF) nodes.push_back({line(), line(), line(), line(), !line().empty()});
  return nodes;
}

}  // namespace

std::string text(const Tape& tape) { return table({texts_of(tape, 1)}); }

std::string text(const Tape& tape, Communicator& comm) {
  const TapeText mine = texts_of(tape, static_cast<size_t>(comm.size()));
  std::vector<TapeText> ranks;
  for (const std::string& lines : all_texts(packed(mine), comm, Site::here("tapes"))) ranks.push_back(unpacked(lines));
  return table(ranks);
}

void print(const Tape& tape) { std::cout << text(tape) << std::flush; }

void print_tapes(const Tape& tape, Communicator& comm) {
  const std::string tapes = text(tape, comm);
  if (comm.rank() == GroupRank{0}) std::cout << tapes << std::flush;
}

}  // namespace weft
