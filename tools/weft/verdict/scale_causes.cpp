// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/scale_causes.h"

#include <algorithm>
#include <numeric>

namespace weft::verify {
namespace {

struct NamedFactor {
  const char* id;
  std::string variant;
  double value;
};

// Factors that a mistake gives to everything alike.
std::vector<NamedFactor> factors_of_all(const Dump& dump) {
  const double ranks = dump.ranks, passes = dump.micro_batches;
  std::vector<NamedFactor> all = {{"S8", "", ranks}, {"S9", "", 1 / ranks}};
  if (passes > 1) {
    all.push_back({"S16", "multiplied by A", passes});
    all.push_back({"S16", "divided by A once more", 1 / passes});
    all.push_back({"S16", "a window of A - 1", (passes - 1) / passes});
  }
  const auto samples = static_cast<double>(std::accumulate(dump.rows.begin(), dump.rows.end(), int64_t{0}));
  if (samples == 0) return all;
  const auto largest = static_cast<double>(*std::ranges::max_element(dump.rows));
  const auto busy = static_cast<double>(std::ranges::count_if(dump.rows, [](int64_t rows) { return rows > 0; }));
  all.push_back({"S13", "", samples / (ranks * largest)});
  all.push_back({"S33", "by the number of ranks that have samples", ranks / busy});
  all.push_back({"S33", "by the number of samples", 1 / samples});
  all.push_back({"S33", "multiplied by the number of samples", samples});
  for (size_t r = 0; r < dump.rows.size(); ++r)
    if (dump.rows[r] > 0)
      all.push_back({"S33", "by the samples of rank " + std::to_string(r) + ", times the number of ranks",
                     samples / (ranks * static_cast<double>(dump.rows[r]))});
  return all;
}

// Those that it gives to the encoder, while shared scalars are right.
std::vector<NamedFactor> factors_of_encoders(const Dump& dump) {
  const double ranks = dump.ranks;
  return {{"S3", "", 1 / ranks}, {"S7", "", ranks}, {"S18", "", 0}, {"S1", "of a loss that all ranks hold", 0}};
}

Explained explained(const NamedFactor& named, const Factor& factor) {
  const double distance = factor.distance(named.value);
  return {&signature(named.id), named.variant, distance == 0 ? 0 : limit * distance / factor.tolerance(named.value)};
}

const Factor& gradient(const MeasuredParameter& p) { return p.gradients[0]; }

bool spares_scalars(const NamedFactor& named, const std::vector<MeasuredParameter>& all) {
  return std::ranges::none_of(all, [&](const MeasuredParameter& p) {
    return p.single() && !gradient(p).flat() && !gradient(p).is(1) && gradient(p).is(named.value);
  });
}

Causes causes_of_different_gradients(const MeasuredParameter& of, const Dump& dump) {
  Causes causes;
  const auto add = [&](const char* id, const Factor& factor) { causes.push_back(explained({id, "", 1}, factor)); };
  const bool mean = dump.reducer == Reducer::mean;
  const Factor& reduced = mean ? of.of_mean : of.of_sum;
  if (reduced.is(1)) add("S22", reduced);
  if (reduced.is(1) && dump.micro_batches > 1) add("S17", reduced);
  if (of.of_sum.is(1)) add("S29", of.of_sum);
  return causes;
}

}  // namespace

Causes causes_of_loss(const MeasuredParameter& of, const std::vector<MeasuredParameter>& all, const Dump& dump) {
  Causes causes;
  for (const NamedFactor& named : factors_of_all(dump))
    if (std::ranges::all_of(all, [&](const MeasuredParameter& p) { return p.loss->is(named.value); }))
      causes.push_back(explained(named, *of.loss));
  const bool reweighted =
      std::ranges::all_of(all, [](const MeasuredParameter& p) { return p.reweighted && p.reweighted->is(1); });
  if (reweighted) causes.push_back(explained({"S12", "", 1}, *of.reweighted));
  return causes;
}

Causes causes_of_gradient(const MeasuredParameter& of, const std::vector<MeasuredParameter>& all, const Dump& dump) {
  if (!of.agree) return causes_of_different_gradients(of, dump);
  const Factor& mine = gradient(of);
  const auto every = [&](auto test) { return std::ranges::all_of(all, test); };
  Causes causes;
  for (const NamedFactor& named : factors_of_all(dump))
    if (every([&](const MeasuredParameter& p) { return gradient(p).is(named.value); }))
      causes.push_back(explained(named, mine));
  for (const NamedFactor& named : factors_of_encoders(dump))
    if (mine.is(named.value) && spares_scalars(named, all) &&
        every([&](const MeasuredParameter& p) { return gradient(p).is(1) || gradient(p).is(named.value); }))
      causes.push_back(explained(named, mine));
  const double passes = dump.micro_batches;
  if (of.single() && every([&](const MeasuredParameter& p) { return gradient(p).is(p.single() ? passes : 1); }))
    causes.push_back(explained({"S19", "", passes}, mine));
  const auto by_elements = [](const MeasuredParameter& p) {
    return NamedFactor{"S33", "by the number of elements", 1 / static_cast<double>(p.parameter->directions.cols())};
  };
  if (every([&](const MeasuredParameter& p) { return gradient(p).is(1) || gradient(p).is(by_elements(p).value); }))
    causes.push_back(explained(by_elements(of), mine));
  const bool differs = !every([&](const MeasuredParameter& p) { return gradient(p).is(mine.nearest()); });
  if (mine.is_multiple() && mine.nearest() != 0 && differs &&
      every([](const MeasuredParameter& p) { return gradient(p).flat() || gradient(p).is_multiple(); }))
    causes.push_back(explained({"S30", "", mine.nearest()}, mine));
  return causes;
}

}  // namespace weft::verify
