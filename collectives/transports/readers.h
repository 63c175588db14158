// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which ranks' tensors each rank reads in a reduction.
#include <algorithm>
#include <vector>

#include "weft/collectives/fold.h"

namespace weft {

// Readers of the same ranks have one fold.
struct Readers {
  // Every rank reads every rank's.
  explicit Readers(int ranks)
      : folds(1), reader_of(1), fold_of(static_cast<size_t>(ranks)), is_read(fold_of.size(), true) {
    for (int source = 0; source < ranks; ++source) folds[0].push_back(source);
    most_sources = ranks - 1;
  }
  Readers(int ranks, FunctionRef<bool(int reader, int source)> reads) : is_read(static_cast<size_t>(ranks)) {
    for (int reader = 0; reader < ranks; ++reader) {
      std::vector<int> sources;
      for (int source = 0; source < ranks; ++source)
        if (reads(reader, source)) sources.push_back(source), is_read[static_cast<size_t>(source)] = true;
      const auto same = std::find(folds.begin(), folds.end(), sources);
      fold_of.push_back(sources.empty() ? -1 : static_cast<int>(same - folds.begin()));
      const bool reads_itself = std::find(sources.begin(), sources.end(), reader) != sources.end();
      most_sources = std::max(most_sources, static_cast<int>(sources.size()) - reads_itself);
      if (!sources.empty() && same == folds.end()) folds.push_back(std::move(sources)), reader_of.push_back(reader);
    }
  }
  // If not, each receives at most one tensor when all are sent as a whole.
  bool add() const { return most_sources >= 2; }

  Fold fold(size_t i, Fold own) const {
    own.ranks = folds[i], own.order = own.order.to(reader_of[i]);
    return own;
  }

  std::vector<std::vector<int>> folds;  // the ranks of each
  std::vector<int> reader_of;           // one of the readers of each
  std::vector<int> fold_of;             // of each reader; -1 for ranks that read nothing
  std::vector<char> is_read;            // of each rank, by any
  int most_sources = 0;                 // of any reader, besides itself
};

}  // namespace weft
