// SPDX-License-Identifier: Apache-2.0
// The text of a metrics.jsonl, read by a run that resumes from step 100. Its rows end at the first invalid line.
#include "apps/shared/run/metrics_rows.h"

#include "tests/fuzz/target.h"
#include "weft/data/idx.h"  // MalformedInput

namespace weft::fuzz {

void read(std::string_view bytes) {
  constexpr int64_t last_step = 100;
  const ReadRows read = read_rows(bytes, {"loss", "accuracy", "rate"}, last_step);
  must(read.bytes <= bytes.size() && (read.bytes == 0 || bytes[read.bytes - 1] == '\n'), "whole lines are kept");
  int64_t before = 0;
  for (const MetricsRow& row : read.rows) {
    must(row.step >= before && row.step <= last_step && row.cells.size() <= 3, "steps go on to the last");
    before = row.step;
  }
  if (!read.damage.empty()) throw MalformedInput(read.damage);
}

}  // namespace weft::fuzz
