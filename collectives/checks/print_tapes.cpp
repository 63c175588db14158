// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/print_tapes.h"

#include <algorithm>
#include <iostream>

#include "weft/collectives/checks/tape_table.h"

namespace weft {
namespace {

using Cell = TapeTable::Cell;
using Line = TapeTable::Line;

constexpr size_t page_width = 100, label_width = 30, most_columns = 5;

// Ranks beside each other. If there are more than fit, blocks of them are below each other.
size_t columns(size_t ranks) {
  const size_t blocks = (ranks + most_columns - 1) / most_columns;
  return (ranks + blocks - 1) / blocks;
}
size_t cell_width(size_t ranks) { return (page_width - label_width) / columns(ranks); }

std::string cut(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, std::min(width, text.find_last_of(' ', width)));
}

std::string padded(const std::string& text, size_t width, char fill = ' ') {
  std::string result = cut(text, width - 1);
  if (result.size() + 1 < width) (result += ' ').resize(width - 1, fill);
  return result + ' ';
}

std::string excerpt(const TapeTable::Excerpt& x, size_t width) {
  return !x.whole.empty() && x.whole.size() < width ? x.whole : cut(x.brief, width - 1);
}

std::string label(const Line& line, const Cell& cell, char fill) {
  const std::string what = text(cell.number) + ' ' + line.op + cell.inputs;
  return padded(what, label_width - cell.placement.size() - 1, fill) + cell.placement;
}

// The columns of ranks [begin, end).
std::string block(const TapeTable& table, size_t begin, size_t end, size_t width) {
  std::string block;
  const auto add = [&](const std::string& label, char fill, const auto& cell) {
    block += padded(label, label_width, fill);
    for (size_t rank = begin; rank < end; ++rank) block += padded(cell(rank), width, fill);
    block.erase(block.find_last_not_of(' ') + 1);
    block += '\n';
  };
  add("node", ' ', [](size_t rank) { return "rank " + text(rank); });
  for (const Line& line : table.lines) {
    const auto here = std::span(line.ranks).subspan(begin, end - begin);
    const auto first = std::ranges::find_if(here, [](const auto& cell) { return cell.has_value(); });
    if (first == here.end()) continue;
    const auto cells = [&](TapeTable::Excerpt Cell::*which) {
      return [&, which](size_t r) { return line.ranks[r] ? excerpt(*line.ranks[r].*which, width) : ""; };
    };
    const char fill = line.collective ? '=' : ' ';
    add(label(line, **first, fill), fill, cells(&Cell::value));
    if (!(*first)->cotangent.brief.empty()) add("   cotangent", ' ', cells(&Cell::cotangent));
  }
  return block;
}

std::string printed(const TapeTable& table, size_t ranks) {
  const size_t step = columns(ranks), width = cell_width(ranks);
  std::string all;
  for (size_t begin = 0; begin < ranks; begin += step)
    all += (begin > 0 ? "\n" : "") + block(table, begin, std::min(begin + step, ranks), width);
  return all;
}

}  // namespace

std::string text(const Tape& tape) { return printed(table_of(TapeLog::notes(tape)), 1); }

std::string text(const Tape& tape, Communicator& comm) {
  return printed(table_of(TapeLog::notes(tape), comm, Site::here("tapes")), static_cast<size_t>(comm.size()));
}

void print(const Tape& tape) { std::cout << text(tape) << std::flush; }

void print_tapes(const Tape& tape, Communicator& comm) {
  const std::string tapes = text(tape, comm);
  if (comm.rank() == GroupRank{0}) std::cout << tapes << std::flush;
}

}  // namespace weft
