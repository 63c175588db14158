// SPDX-License-Identifier: Apache-2.0
#include "exercises/grader/trial.h"

#include <algorithm>
#include <cmath>

#include "exercises/functions.h"
namespace weft::grader {

const std::vector<Rows>& divisions() {
  static const std::vector<Rows> all = {
      {4}, {2, 2, 2}, {1, 4, 2}, {3, 0, 2}, {2, 2, 2, 2, 2}, {3, 1, 4, 2, 5}, {2, 3, 0, 4, 1}};
  return all;
}

std::string text(const Rows& samples) {
  std::string text = std::to_string(samples.size()) + (samples.size() == 1 ? " rank with " : " ranks with ");
  for (size_t r = 0; r < samples.size(); ++r) text += (r ? ", " : "") + std::to_string(samples[r]);
  return text;
}

Trial tried(const Measure& answer, size_t quantities, const Rows& samples) {
  Trial trial{std::vector<OfRanks>(quantities, OfRanks(samples.size())), {}};
  try {
    run_ranks(static_cast<int>(samples.size()), [&](Communicator& comm) {
      const std::vector<Tensor> given = answer(comm, samples);
      for (size_t q = 0; q < quantities; ++q) trial.quantities[q][static_cast<size_t>(comm.rank().value)] = given[q];
    });
  } catch (const exercises::NotWritten&) {
    throw;
  } catch (const std::exception& error) {
    trial.error = error.what();
  }
  return trial;
}

std::vector<Trial> tried(const Measure& answer, size_t quantities) {
  std::vector<Trial> trials;
  for (const Rows& samples : divisions()) trials.push_back(tried(answer, quantities, samples));
  return trials;
}

bool equal(double a, double b, double rounding) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= rounding * (1 + std::abs(a) + std::abs(b));
}

bool equal(const Tensor& a, const Tensor& b, double rounding) {
  if (!a.defined() || !b.defined() || a.shape() != b.shape()) return false;
  const std::vector<double> of_a = a.values(), of_b = b.values();
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), [&](double x, double y) { return equal(x, y, rounding); });
}

bool equal(const OfRanks& a, const OfRanks& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return equal(x, y); });
}

}  // namespace weft::grader
