// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pictures that a program learns, and those that it is tested on.
#include <filesystem>
#include <string>
#include <vector>

#include "weft/data/batches.h"

namespace weft {

struct Pictures {
  std::string name;                  // of the data set, for titles: "Fashion-MNIST"
  std::vector<std::string> classes;  // their names; a label is a place in them
  LabelledImages train, test;
  std::filesystem::path folder;  // where the files were found

  bool labelled() const { return !classes.empty(); }
  int64_t count_of_classes() const { return static_cast<int64_t>(classes.size()); }
};

}  // namespace weft
