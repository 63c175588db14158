// SPDX-License-Identifier: Apache-2.0
#pragma once
// A linear collective as a matrix that can be drawn: which rows of whose tensor each rank reads, and where they land in
// its result. Those of verbs.h can be drawn too, and so can what someone takes for their adjoint.
#include <algorithm>
#include <vector>

#include "weft/collectives/verbs.h"

namespace weft::web {

struct Blocks {
  Rows inputs, results;        // rows of each rank's tensor, and of what it gets
  std::vector<Portion> cells;  // (reader, source), a reader's beside each other

  Blocks(Rows inputs, Rows results)
      : inputs(std::move(inputs)), results(std::move(results)), cells(this->inputs.size() * this->inputs.size()) {}

  int ranks() const { return static_cast<int>(inputs.size()); }
  Portion& at(int reader, int source) { return cells[static_cast<size_t>(reader * ranks() + source)]; }
  const Portion& at(int reader, int source) const { return const_cast<Blocks&>(*this).at(reader, source); }
  bool operator==(const Blocks&) const = default;

  // As verbs.h asks of a collective.
  Blocks adjoint() const {
    Blocks transpose(results, inputs);
    for (int r = 0; r < ranks(); ++r)
      for (int s = 0; s < ranks(); ++s)
        if (const auto [from, count, to] = at(r, s); count > 0) transpose.at(s, r) = {to, count, from};
    return transpose;
  }
  Portion portion(int reader, int source) const { return at(reader, source); }
  int64_t exposed(int rank) const { return inputs[static_cast<size_t>(rank)]; }
  Verb verb() const { return Verb::custom; }
  static constexpr const char* op_name = "blocks";
  static constexpr bool by_rows = true, sums = false;
  static constexpr Placement result = Placement::varying;
};

// A collective of whole tensors: each rank sums those for which its row of the table is set.
struct Sums {
  std::vector<std::vector<bool>> table;  // (reader, source)
  Sums adjoint() const {
    Sums transpose = *this;
    for (size_t r = 0; r < table.size(); ++r)
      for (size_t s = 0; s < table.size(); ++s) transpose.table[s][r] = table[r][s];
    return transpose;
  }
  Portion portion(int reader, int source) const {
    return table[static_cast<size_t>(reader)][static_cast<size_t>(source)] ? whole_tensor : no_portion;
  }
  int64_t exposed(int) const { return 1; }
  Verb verb() const { return Verb::custom; }
  static constexpr const char* op_name = "sums";
  static constexpr bool by_rows = false, sums = false;
  static constexpr Placement result = Placement::varying;
};

// Any collective as blocks, for inputs of so many rows.
template <LinearCollective C> Blocks blocks_of(const C& collective, const Rows& inputs) {
  Blocks blocks(inputs, C::by_rows ? Rows(inputs.size()) : inputs);
  for (int r = 0; r < blocks.ranks(); ++r)
    for (int s = 0; s < blocks.ranks(); ++s)
      if (const Portion portion = collective.portion(r, s); portion.count > 0) {
        blocks.at(r, s) = C::by_rows ? portion : Portion{0, blocks.exposed(s), 0};
        int64_t& rows = blocks.results[static_cast<size_t>(r)];
        rows = std::max(rows, blocks.at(r, s).to + blocks.at(r, s).count);
      }
  return blocks;
}

}  // namespace weft::web
