// SPDX-License-Identifier: Apache-2.0
// The text of a tapes.json: the page that is made of an accepted one has one script more than its own, of these tapes.
#include "tests/fuzz/target.h"
#include "tools/weft/view/page.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  const std::string page = view::page_of(std::string(bytes), "tapes.json");
  int ends = 0;
  for (size_t at = 0; (at = page.find("</script", at)) != std::string::npos; ++at) ++ends;
  must(ends == 2, "tapes do not end a script");
}

}  // namespace weft::fuzz
