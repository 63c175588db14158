// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/text/suggestion.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

// An option's dashes are no letters.
size_t letters_of(const std::string& name) { return name.size() - std::min(name.size(), name.find_first_not_of('-')); }

// More mistakes than one in four letters make it another word: --limit is not --init.
size_t max_distance(const std::string& given) { return std::max<size_t>(1, letters_of(given) / 4); }

// "locally" of "local"
bool is_longer_form(const std::string& given, const std::string& name) {
  return letters_of(name) >= 4 && given.starts_with(name);
}

}  // namespace

size_t edit_distance(const std::string& a, const std::string& b) {
  // Rows of the usual table: distances from the first i letters of a to the first j of b.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

std::string suggestion(const std::string& given, const std::vector<std::string>& names) {
  const std::string* nearest = nullptr;
  size_t least = max_distance(given) + 1;
  for (const std::string& name : names) {
    if (is_longer_form(given, name)) return "; did you mean " + name + "?";
    const size_t bound = std::min(least, name.size());
    if (std::max(given.size(), name.size()) - std::min(given.size(), name.size()) >= bound) continue;  // too far apart
    if (const size_t distance = edit_distance(given, name); distance < bound) nearest = &name, least = distance;
  }
  return nearest ? "; did you mean " + *nearest + "?" : "";
}

}  // namespace weft
