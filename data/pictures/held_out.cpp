// SPDX-License-Identifier: Apache-2.0
#include "weft/data/pictures/held_out.h"

#include "weft/data/files/checksum.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

constexpr int64_t one_of = 10;

}  // namespace

bool is_held_out(std::string_view path) { return checksum(path.data(), path.size()) % one_of == 0; }

void hold_out(Pictures& pictures) {
  std::vector<int64_t> train, test;
  for (int64_t i = 0; i < pictures.train.count(); ++i) (i % one_of == one_of - 1 ? test : train).push_back(i);
  pictures.notes.push_back(grouped(std::ssize(test)) + " of " + grouped(pictures.train.count()) +
                           " pictures are kept for tests, every tenth");
  pictures.test = subset(pictures.train, test);
  pictures.train = subset(pictures.train, train);
}

}  // namespace weft
