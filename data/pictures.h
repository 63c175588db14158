// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pictures that a program learns, and those that it is tested on.
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/data/batches.h"

namespace weft {

struct Pictures {
  std::string name;                  // of the data set, for titles: "Fashion-MNIST"
  std::vector<std::string> classes;  // their names; a label is a place in them. None if the pictures have no labels
  LabelledImages train, test;        // labels are -1 if there are none; `test` may be empty
  std::filesystem::path folder;      // where the files were found
  // Of each picture, relative to `folder`; none if many pictures are in one file.
  std::vector<std::string> train_files = {}, test_files = {};
  std::vector<std::string> notes = {}, warnings = {};  // for people: how the pictures were found, divided and resized

  bool labelled() const { return !classes.empty(); }
  int64_t count_of_classes() const { return static_cast<int64_t>(classes.size()); }
  int64_t height() const { return train.images.shape()[1]; }
  int64_t across() const { return train.images.shape()[2]; }
  int64_t channels() const { return train.images.shape()[3]; }
  // Of a square of about as many pixels.
  int64_t side() const { return std::llround(std::sqrt(static_cast<double>(height() * across()))); }
};

}  // namespace weft
