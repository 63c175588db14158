// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/compare.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/weft/dump/tensor_files.h"
#include "tools/weft/verdict/print.h"

namespace weft::verify {
namespace {

// The relative distance of neighbours; 0 for integers, which are not rounded.
double epsilon_of(const FileTensor& stored, DType dtype) {
  if (stored.half) return 0x1p-10;
  switch (dtype) {
    case DType::f64: return 0x1p-52;
    case DType::f32: return 0x1p-23;
    case DType::bf16: return 0x1p-8;
    default: return 0;
  }
}

// `theirs` is what is told as dumped, `ours` as expected.
Comparison comparison_of(const std::string& name, const Tensor& ours, const Tensor& theirs, double epsilon) {
  Comparison result{name, ours.size()};
  const Tensor a = ours.to(DType::f64), b = theirs.to(DType::f64);
  const auto *x = a.data<double>(), *y = b.data<double>();
  double largest = 0, of_x = 0, of_y = 0, products = 0, worst = -1;
  for (int64_t i = 0; i < a.size(); ++i) {
    const bool same = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]));
    const double gap = same ? 0 : std::isfinite(x[i] - y[i]) ? std::abs(x[i] - y[i]) : INFINITY;
    if (gap > worst) {
      worst = gap;
      result.worst_element = i, result.dumped = y[i], result.expected = x[i];
    }
    largest = std::max({largest, std::abs(x[i]), std::abs(y[i])});
    of_x += x[i] * x[i], of_y += y[i] * y[i], products += x[i] * y[i];
  }
  if (worst <= 0) return result;
  result.error = std::isfinite(largest) ? worst / (epsilon * largest) : INFINITY;
  result.cosine = products / std::sqrt(of_x * of_y);
  result.ratio = std::sqrt(of_y / of_x);
  return result;
}

Pair pair_of(const std::string& name, const Tensors& ours, const Tensors& theirs) {
  const auto mine = ours.find(name), other = theirs.find(name);
  if (other == theirs.end()) return {{name}, "only in OURS"};
  if (mine == ours.end()) return {{name}, "only in THEIRS"};
  const Tensor x = mine->second.read(), y = other->second.read();
  if (x.shape() != y.shape()) return {{name}, "shapes " + text(x.shape()) + " and " + text(y.shape())};
  const double epsilon = std::max(epsilon_of(mine->second, x.dtype()), epsilon_of(other->second, y.dtype()));
  return {comparison_of(name, x, y, epsilon), ""};
}

}  // namespace

size_t Difference::compared() const {
  return static_cast<size_t>(std::ranges::count_if(pairs, [](const Pair& pair) { return pair.mismatch.empty(); }));
}
size_t Difference::differing() const {
  return static_cast<size_t>(std::ranges::count_if(pairs, [&](const Pair& pair) { return pair.differs(limit); }));
}
const Pair* Difference::first() const {
  const auto found = std::ranges::find_if(pairs, [&](const Pair& pair) { return pair.differs(limit); });
  return found == pairs.end() ? nullptr : &*found;
}
Outcome Difference::outcome() const {
  const bool any = std::ranges::any_of(pairs, [](const Pair& pair) { return pair.numbers.elements > 0; });
  return differing() > 0 ? Outcome::wrong : any ? Outcome::correct : Outcome::cannot_tell;
}

Difference compare(const std::filesystem::path& ours, const std::filesystem::path& theirs, double limit) {
  const Tensors mine = tensors_of(ours), others = tensors_of(theirs);
  std::set<std::string, NaturalOrder> names;
  for (const Tensors* all : {&mine, &others})
    for (const auto& [name, tensor] : *all) names.insert(name);
  Difference difference{{}, limit};
  for (const std::string& name : names) difference.pairs.push_back(pair_of(name, mine, others));
  return difference;
}

std::string text_of(const Difference& difference) {
  constexpr size_t max_rows = 20;
  std::vector<Comparison> rows;
  std::string text, mismatches;
  for (const Pair& pair : difference.pairs) {
    if (!pair.mismatch.empty()) mismatches += "  " + pair.numbers.tensor + ": " + pair.mismatch + "\n";
    if (pair.mismatch.empty() && pair.differs(difference.limit) && rows.size() < max_rows) rows.push_back(pair.numbers);
  }
  if (const Pair* first = difference.first())
    text =
        "first difference: " + first->numbers.tensor + (first->mismatch.empty() ? "" : ", " + first->mismatch) + "\n";
  if (!rows.empty()) text += table_of(rows);
  if (!mismatches.empty()) text += "not compared:\n" + mismatches;
  text += std::to_string(difference.compared()) + " tensors compared, " + std::to_string(difference.differing()) +
          " of " + std::to_string(difference.pairs.size()) + " differ\n";
  switch (difference.outcome()) {
    case Outcome::correct: return text + "verdict: equal\n";
    case Outcome::wrong: return text + "verdict: different\n";
    default: return text + "verdict: cannot tell, no element was compared\n";
  }
}

std::string json_of(const Difference& difference) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Pair& pair : difference.pairs)
    all.push_back(pair.mismatch.empty()
                      ? json_row(pair.numbers)
                      : nlohmann::ordered_json{{"tensor", pair.numbers.tensor}, {"mismatch", pair.mismatch}});
  const Pair* first = difference.first();
  const nlohmann::ordered_json result = {
      {"outcome", first                                      ? "different"
                  : difference.outcome() == Outcome::correct ? "equal"
                                                             : "cannot tell"},
      {"first_difference", first ? nlohmann::ordered_json(first->numbers.tensor) : nullptr},
      {"limit", difference.limit},
      {"tensors", all}};
  return result.dump(2) + "\n";
}

}  // namespace weft::verify
