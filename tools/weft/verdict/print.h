// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

// For people: a table for each subject, and what the verdict means for them.
std::string text_of(const std::vector<Verdict>& verdicts, const Dump& dump);
// The same for programs.
std::string json_of(const std::vector<Verdict>& verdicts, const Dump& dump);
// What this dump could not tell.
std::string power_of(const std::vector<Verdict>& verdicts, const Dump& dump);

// A line for each tensor, with its worst element.
std::string table_of(const std::vector<Comparison>& rows);
nlohmann::ordered_json json_row(const Comparison& row);

const char* name(Outcome outcome);

}  // namespace weft::verify
