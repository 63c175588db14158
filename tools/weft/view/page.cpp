// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/view/page.h"

#include <nlohmann/json.hpp>

#include "apps/shared/report/report_style.h"
#include "tapes_page.h"
#include "weft/data/idx.h"  // MalformedInput

namespace weft::view {
namespace {

using Json = nlohmann::json;

bool is_node(const Json& node) {
  if (node.is_null()) return true;
  if (!node.is_array() || node.size() != 8 || !node[0].is_number_unsigned()) return false;
  return std::all_of(node.begin() + 1, node.end(), [](const Json& each) { return each.is_string(); });
}

bool is_line(const Json& line, size_t ranks) {
  const Json& nodes = line.at("ranks");
  return line.at("op").is_string() && line.at("place").is_string() && line.at("collective").is_boolean() &&
         nodes.size() == ranks && std::all_of(nodes.begin(), nodes.end(), is_node);
}

bool are_tapes(const Json& all) {
  const size_t ranks = all.at("ranks").get<size_t>();
  const auto is_tape = [&](const Json& tape) {
    return tape.is_array() &&
           std::all_of(tape.begin(), tape.end(), [&](const Json& line) { return is_line(line, ranks); });
  };
  const Json& tapes = all.at("tapes");
  return all.at("title").is_string() && all.at("step").is_number_unsigned() && tapes.is_array() &&
         std::all_of(tapes.begin(), tapes.end(), is_tape);
}

void expect_tapes(const std::string& text, const std::string& file) {
  try {
    if (are_tapes(Json::parse(text))) return;
  } catch (const Json::exception&) {  // what it says is about JSON, not about the file
  }
  throw MalformedInput(file + " has no tapes, or is damaged; a training writes it with --record-step N");
}

// Within a script, "</" could end it.
std::string in_script(const std::string& json) {
  std::string text;
  for (const char c : json) {
    if (c == '/' && text.ends_with('<')) text += '\\';
    text += c;
  }
  return text;
}

void put(std::string& page, const std::string& mark, const std::string& text) {
  page.replace(page.find(mark), mark.size(), text);
}

}  // namespace

std::string page_of(const std::string& tapes, const std::string& file) {
  expect_tapes(tapes, file);
  std::string page = tapes_page;
  put(page, "/* style of reports */", report_style);
  put(page, "/* style of lanes */", lanes_style);
  put(page, "<!-- lanes -->", lanes);
  put(page, "/* script of lanes */", lanes_script);
  put(page, "{/* tapes */}", in_script(tapes));
  return page;
}

}  // namespace weft::view
