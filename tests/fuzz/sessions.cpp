// SPDX-License-Identifier: Apache-2.0
// The text of a sessions.json: accepted files can be written and read again.
#include "apps/shared/run/sessions.h"

#include "tests/fuzz/target.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  const std::vector<RunSession> sessions = read_sessions(bytes);
  const std::string written = json(sessions);
  const auto again = must_be_accepted([&] { return read_sessions(written); });
  must(json(again) == written, "sessions are read as written");
  whole(sessions);
}

}  // namespace weft::fuzz
