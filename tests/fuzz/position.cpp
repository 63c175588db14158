// SPDX-License-Identifier: Apache-2.0
// A run's position in its data, as stored in a checkpoint.
#include "weft/data/batches.h"

#include "tests/fuzz/target.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  static Batches batches(10, 3, 1);
  batches.seek(std::string(bytes));
  must(batches.position() == bytes, "a position is read as written");
  must(batches.next().size() <= 3, "there is a batch");
}

}  // namespace weft::fuzz
