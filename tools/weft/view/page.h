// SPDX-License-Identifier: Apache-2.0
#pragma once
// A page in one file that shows a step's tapes, node by node: tapes.html has its form and its program.
#include <string>

namespace weft::view {

// `tapes` is the text of a tapes.json (apps/shared/report/tape_file.h). Throws MalformedInput, which names the file.
std::string page_of(const std::string& tapes, const std::string& file);

}  // namespace weft::view
