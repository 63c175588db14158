// SPDX-License-Identifier: Apache-2.0
// The text of a config.toml.
#include "apps/shared/launch/config_text.h"

#include "tests/fuzz/target.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  size_t total = 0;
  for (const ConfigValue& value : read_config(bytes)) {
    must(!value.name.empty(), "every value has a name");
    total += value.name.size();
    for (const std::string& item : value.values) total += item.size();
  }
  must(total <= bytes.size(), "nothing is there that was not in the text");
}

}  // namespace weft::fuzz
