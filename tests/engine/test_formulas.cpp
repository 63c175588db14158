// SPDX-License-Identifier: Apache-2.0
// The page of a step's tapes tells for every op what it computes and what comes back through it.
#include <catch2/catch.hpp>

#include <algorithm>
#include <regex>

#include "weft/engine/tape/op.h"
#include "weft/engine/text/file_text.h"

using namespace weft;

namespace {

using Names = std::vector<std::string>;

// Of all entries  "mul": ["y = a b", "to a: g b", "to b: g a"]  those that have at least two texts.
Names names_with_formulas() {
  const std::string file = file_text(WEFT_FORMULAS);
  const std::regex entry(R"re(\n  "([^"]+)": \["[^"]+", "[^"]+")re");
  Names names;
  for (auto found = std::sregex_iterator(file.begin(), file.end(), entry); found != std::sregex_iterator(); ++found)
    names.push_back((*found)[1]);
  std::ranges::sort(names);
  return names;
}

Names names_of_ops() {
  Names names;
  for (const Op* op : Op::all()) names.push_back(op->name);
  std::ranges::sort(names);
  return names;
}

Names missing(const Names& from, const Names& wanted) {
  Names result;
  std::ranges::set_difference(wanted, from, std::back_inserter(result));
  return result;
}

}  // namespace

TEST_CASE("every op has a formula on the page of tapes, and every formula is of an op") {
  const Names formulas = names_with_formulas();
  CHECK(missing(formulas, names_of_ops()) == Names{});
  CHECK(missing(names_of_ops(), formulas) == Names{});  // a name that is there twice, too
  const Op planted_op{"multiply", {}};
  CHECK(missing(formulas, names_of_ops()) == Names{"multiply"});
}
