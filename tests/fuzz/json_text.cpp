// SPDX-License-Identifier: Apache-2.0
// A list of values of any kind; strings can be written and read again.
#include "weft/data/files/json_text.h"

#include "tests/fuzz/target.h"

namespace weft::fuzz {
namespace {

void read_string(JsonText& json) {
  const std::string text = json.string();
  must(is_utf8(text), "strings are UTF-8");
  must(must_be_accepted([&] { return JsonText(in_quotes(text), "again", 0).string(); }) == text,
       "a string is read as written");
  must(is_utf8(excerpt(text)), "messages are UTF-8");
}

}  // namespace

void read(std::string_view bytes) {
  JsonText json(bytes, "json", 0);
  json.object("the object", {{"string", [&] { read_string(json); }, true},
                             {"strings", [&] { json.array([&] { read_string(json); }); }, true},
                             {"number", [&] { json.number(); }, true},
                             {"real", [&] { json.real(); }, true},
                             {"any", [&] { json.object([&](const std::string&) { read_string(json); }); }, true}});
  json.end();
}

}  // namespace weft::fuzz
