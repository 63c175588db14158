// SPDX-License-Identifier: Apache-2.0
// Values of environment variables: the first letter selects WEFT_TIMEOUT, WEFT_RANKS or a launcher's variable.
#include "weft/collectives/transports/environment.h"

#include "tests/fuzz/target.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  const char kind = bytes.empty() ? 's' : bytes[0];
  const std::string_view given = bytes.substr(bytes.empty() ? 0 : 1);
  if (kind == 's') {
    const auto time = seconds_in("WEFT_TIMEOUT", given).count();
    must(time >= 1 && time <= 1'000'000'000, "a deadline is from a millisecond to 1e6 seconds");
  } else if (kind == 'r') {
    must(ranks_in("WEFT_RANKS", given) > 0, "there is a rank");
  } else {
    launcher_number_in(given);
  }
}

}  // namespace weft::fuzz
