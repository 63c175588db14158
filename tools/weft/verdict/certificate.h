// SPDX-License-Identifier: Apache-2.0
#pragma once
// What can be shown to others of a dump: its verdict, what it could not have told, and of which files, by their
// SHA-256. The same dump gives the same bytes.
#include <filesystem>

#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

struct Certificate {
  Outcome outcome;
  std::string json, page;  // for programs; for people, as HTML that loads nothing
};

Certificate certificate_of(const std::filesystem::path& folder);

}  // namespace weft::verify
