// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/streamed_verdict.h"

#include <algorithm>
#include <cmath>

#include "tools/weft/dump/loading.h"

namespace weft::verify {
namespace {

// That belong to an index of the first dimension.
int64_t columns_of(const Shape& shape) { return shape.rank() < 2 ? shape.size() : shape.product(1, shape.rank()); }

// How many elements of a rank the hypotheses may take: a share of the time of all parameters, and little memory.
int64_t elements_of_part(const StoredParameter& parameter, const Dump& dump) {
  constexpr double predicted_at_once = 1 << 21, predicted_of_all = 1 << 23;
  constexpr int64_t fewest = 32;
  const double numbers_of_element = dump.ranks * (predictions_of_element(dump.ranks) + dump.micro_batches),
               share = static_cast<double>(parameter.elements()) / static_cast<double>(dump.stored_elements);
  return std::max(fewest,
                  static_cast<int64_t>(std::min(predicted_at_once, share * predicted_of_all) / numbers_of_element));
}

// Verdicts on parts of a parameter.
class Parts {
 public:
  Parts(const ParameterEvidence& parameter, const Dump& dump)
      : stored_(*parameter.stored),
        dump_(dump),
        shape_(stored_.reduced_shapes()[0]),
        dimensions_(undivided_dimensions(stored_, layout_of(parameter, dump))),
        elements_(elements_of_part(stored_, dump)) {}

  bool whole() const { return largest_shape() <= elements_; }
  Verdict spread() const {
    return whole() ? of(loaded(stored_)) : of(loaded(stored_, spread_excerpt(shape_, dimensions_, elements_)));
  }
  Verdict around(int64_t element) const {
    return of(loaded(stored_, excerpt_around(element, shape_, dimensions_, elements_)));
  }
  // Whether there is a part that is small enough.
  bool any() const {
    const Excerpt part = spread_excerpt(shape_, dimensions_, elements_);
    constexpr int64_t tolerable = 4;
    for (const auto& shapes : {stored_.local_shapes(), stored_.reduced_shapes()})
      for (const Shape& each : shapes)
        if (!whole() && (dimensions_.empty() || part.shape(each).size() > tolerable * elements_)) return false;
    return true;
  }

 private:
  Verdict of(ParameterEvidence part) const {
    part.hashes.clear();  // are those of all of it
    return verdict(part, dump_);
  }
  int64_t largest_shape() const {
    int64_t largest = 0;
    for (const auto& shapes : {stored_.local_shapes(), stored_.reduced_shapes()})
      for (const Shape& each : shapes) largest = std::max(largest, each.size());
    return largest;
  }

  const StoredParameter& stored_;
  const Dump& dump_;
  Shape shape_;
  std::vector<int> dimensions_;
  int64_t elements_;
};

// What all of it says, where a part has been explained.
void tell_of_all(Verdict& verdict, const std::vector<StreamedRank>& ranks) {
  verdict.table.clear();
  verdict.resolution.reset();
  for (const StreamedRank& each : ranks) {
    verdict.table.push_back(each.comparison());
    const std::string not_finite = each.comparison().tensor + ": the dumped gradient is not finite";
    if (!each.finite() && std::ranges::find(verdict.remarks, not_finite) == verdict.remarks.end())
      verdict.remarks.push_back(not_finite);
    if (!each.resolution()) continue;
    if (!verdict.resolution) verdict.resolution.emplace();
    verdict.resolution->worsen(*each.resolution());
  }
}

bool named(const Verdict& verdict) { return verdict.outcome == Outcome::wrong && verdict.best; }
bool explained(const Verdict& verdict) {
  return named(verdict) || (verdict.outcome == Outcome::wrong && verdict.described);
}

// A part spread over all elements shows what is wrong with all of them, and one around the worst what is wrong there.
Verdict of_parts(const Parts& parts, int64_t worst_element) {
  Verdict part = parts.spread();
  if (named(part)) return part;
  const Verdict near = parts.around(worst_element);
  if (named(near) || !explained(part)) part = near;
  if (part.described) part.described->text = "in the part that was looked at, " + part.described->text;
  return part;
}

std::optional<double> common_factor(const std::vector<StreamedRank>& ranks) {
  double product = 0, square = 0;
  for (const StreamedRank& each : ranks) {
    product += each.product();
    square += each.truth_square();
  }
  return product == 0 || square == 0 ? std::nullopt : std::optional(product / square);
}

}  // namespace

std::vector<StreamedRank> streamed(const StoredParameter& parameter, const Dump& dump) {
  const std::vector<LazyBlock> truths = expected(parameter, mesh_of(dump), layout_of(parameter.layout, dump));
  const std::vector<Shape> shapes = parameter.reduced_shapes();
  std::vector<StreamedRank> ranks;
  std::vector<std::vector<Tile>> tiles;
  std::vector<Lazy> dumped;
  size_t most = 0;
  for (size_t r = 0; r < shapes.size(); ++r) {
    const int64_t columns = columns_of(shapes[r]), rows = columns == 0 ? 0 : shapes[r].size() / columns;
    ranks.emplace_back(parameter.name + " on rank " + std::to_string(r), rows, columns, parameter.precision.epsilon);
    tiles.push_back(columns == 0 ? std::vector<Tile>() : tiles_of(rows, columns));
    dumped.push_back(parameter.reduced[r]->lazy(parameter.precision.epsilon));
    most = std::max(most, tiles.back().size());
  }
  std::vector<double> of_rank, truth, variances;
  for (size_t i = 0; i < most; ++i)  // ranks in turn: they may have the same sums
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (i >= tiles[r].size()) continue;
      const Tile& tile = tiles[r][i];
      const int64_t first = tile.row * columns_of(shapes[r]) + tile.column, count = tile.rows * tile.columns;
      for (auto* each : {&of_rank, &truth, &variances}) each->resize(static_cast<size_t>(count));
      dumped[r]->read(first, count, of_rank.data(), nullptr);
      truths[r].values->read(first, count, truth.data(), variances.data());
      const auto in_tile = [&](const std::vector<double>& x) {
        return StreamedRank::Numbers(x.data(), tile.rows, tile.columns);
      };
      ranks[r].add(tile, in_tile(of_rank), in_tile(truth), in_tile(variances));
    }
  for (StreamedRank& each : ranks) each.finish();
  return ranks;
}

Verdict streamed_verdict(const ParameterEvidence& parameter, const Dump& dump) {
  const Parts parts(parameter, dump);
  if (parts.whole()) return parts.spread();
  const std::vector<StreamedRank> ranks = streamed(*parameter.stored, dump);
  const Comparison& worst = std::ranges::max_element(ranks, {}, [](const StreamedRank& each) {
                              return each.comparison().error;
                            })->comparison();
  const bool right = worst.error <= limit;

  Verdict part;
  if (parts.any()) part = right ? parts.spread() : of_parts(parts, worst.worst_element);
  Verdict result;
  if (!right && part.outcome == Outcome::wrong) result = part;
  result.subject = "parameter '" + parameter.name + "'";
  result.outcome = right ? Outcome::correct : Outcome::wrong;
  result.blind_to = part.blind_to;
  if (right) result.best = Explained{&signature("S0"), "", worst.error};
  if (right) result.factor = common_factor(ranks);
  tell_of_all(result, ranks);
  if (!parts.any())
    result.remarks.push_back("too large to look for causes: ranks divide each of its dimensions");
  else if (!right)
    result.remarks.push_back("its cause was sought in a part of its elements, since the dump is large");
  else if (!result.blind_to.empty())
    result.remarks.push_back("what does not show was sought in a part of its elements, since the dump is large");
  return result;
}

}  // namespace weft::verify
