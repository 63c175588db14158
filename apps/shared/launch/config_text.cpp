// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/launch/config_text.h"

#include <algorithm>
#include <set>

#include "apps/shared/launch/options.h"
#include "weft/data/files/json_text.h"

namespace weft {
namespace {

bool is_strange(unsigned char c) { return c < ' ' && c != '\t' && c != '\r' && c != '\n'; }

class ConfigText {
 public:
  explicit ConfigText(std::string_view text) : text_(text) {
    at_ = static_cast<size_t>(std::find_if(text.begin(), text.end(), is_strange) - text.begin());
    if (at_ < text.size()) refuse("a control character");
    at_ = 0;
  }

  bool at_end() {
    skip_lines();
    return at_ == text_.size();
  }

  ConfigValue value() {
    const std::string_view name = word("=");
    if (name.empty() || !accept('=')) refuse(excerpt(line()) + " is not NAME = VALUE");
    if (!names_.insert(name).second) refuse(excerpt(name) + " comes twice");
    ConfigValue result{std::string(name), {}};
    if (!accept('['))
      result.values.push_back(item());
    else
      list(result.values);
    skip(" \t\r");
    if (at_ < text_.size() && text_[at_] != '\n') refuse("something follows the value of " + excerpt(name));
    return result;
  }

 private:
  // A list may span several lines.
  void list(std::vector<std::string>& items) {
    for (skip_lines(); !accept(']'); skip_lines()) {
      items.push_back(item());
      skip_lines();
      if (!accept(',') && !text_.substr(at_).starts_with(']')) refuse("',' or ']' is missing in a list");
    }
  }

  std::string item() {
    skip(" \t");
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      const size_t end = text_.find_first_of(std::string{text_[at_], '\n'}, at_ + 1);
      if (end == std::string_view::npos || text_[end] == '\n') refuse("a text does not end");
      const std::string_view within = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      return std::string(within);
    }
    const std::string_view bare = word(",]");
    if (bare.empty()) refuse("a value is missing");
    return std::string(bare);
  }

  // The text up to a space or one of `ends`.
  std::string_view word(std::string_view ends) {
    skip(" \t");
    const size_t begin = at_;
    at_ = std::min(text_.find_first_of(std::string(" \t\r\n#\"'[") + std::string(ends), at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }

  void skip_lines() { skip(" \t\r\n"); }

  // Skips spaces and comments.
  void skip(std::string_view spaces) {
    for (;;) {
      at_ = std::min(text_.find_first_not_of(spaces, at_), text_.size());
      if (at_ == text_.size() || text_[at_] != '#') return;
      at_ = std::min(text_.find('\n', at_), text_.size());
    }
  }

  bool accept(char wanted) {
    skip(" \t");
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  std::string_view line() const {
    const size_t begin = text_.substr(0, at_).rfind('\n') + 1;
    return text_.substr(begin, text_.find('\n', at_) - begin);
  }

  [[noreturn]] void refuse(const std::string& what) const {
    const auto number = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    throw WrongOption("line " + std::to_string(number) + ": " + what);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::set<std::string_view> names_;
};

}  // namespace

std::string obstacle_to_quotes(std::string_view text) {
  if (text.find('\n') != std::string_view::npos) return "the ends of lines";
  if (std::any_of(text.begin(), text.end(), is_strange)) return "the control characters";
  return text.find('"') != std::string_view::npos && text.find('\'') != std::string_view::npos ? "quotes of one kind"
                                                                                               : "";
}

std::vector<ConfigValue> read_config(std::string_view text) {
  if (text.size() > max_config_bytes)
    throw WrongOption("more than " + std::to_string(max_config_bytes) + " bytes are no configuration");
  ConfigText config(text);
  std::vector<ConfigValue> all;
  while (!config.at_end()) all.push_back(config.value());
  return all;
}

}  // namespace weft
