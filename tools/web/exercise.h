// SPDX-License-Identifier: Apache-2.0
#pragma once
// An exercise of the page: a collective of a few ranks, and a backward that may be its adjoint. Each rank's loss is the
// sum of its result, times 10 to the power of its rank, so that the digits of a cotangent tell which losses are in it.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/web/mistakes.h"
#include "weft/collectives/checks/tape_table.h"

namespace weft::web {

using Cells = std::vector<std::vector<bool>>;  // (reader, source)

struct Exercise {
  std::string collective = "all_gather";  // or "drawn"
  Cells drawn = {};                       // whose tensors each rank sums
  int ranks = 3;
  bool uneven = false;  // the numbers of rows
  int root = 0;
  uint64_t seed = 0;             // of normal values and factors of the losses, instead of digits
  std::string mistake = "none";  // what backward does,
  Cells backward = {};           // or which of the adjoint's blocks it has, and others
};

struct Verdict {
  bool correct;                          // by products of random values
  double forward, backward;              // <g, F x> and <F* g, x> of the first random values
  std::vector<const Mistake*> names;     // that give the same to all ranks, whatever the losses
  std::vector<std::string> differences;  // from the adjoint, block by block
  bool shows;                            // whether the exercise's own cotangents differ from the right ones
};

struct Answer {
  Blocks forward;
  Backward backward;
  TapeTable tapes;
  std::string printed;                          // as print_tapes prints them
  std::vector<std::vector<double>> cotangents;  // of each rank's leaf
  Verdict verdict;
};

inline constexpr std::array collectives = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                           "reduce",     "gather",         "scatter",    "all_to_all",
                                           "permute",    "scan",           "exscan"};

Answer answer(const Exercise& exercise);  // an Error if there is no such exercise

}  // namespace weft::web
