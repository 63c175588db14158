// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/norms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/collectives/sharding.h"
#include "weft/engine/kernels/backend.h"

namespace weft {

static_assert(FlatLayout::block == SquareSumsRun::block);

Norms::Norms(const FlatLayout& layout, Combine combine) : device_(layout.device()), combine_(std::move(combine)) {
  int64_t pieces = 0;
  for (const Place& place : layout.places()) {
    first_piece_.push_back(pieces);
    begins_.push_back(place.begin);
    Communicator* group = is_divided(*place.parameter) ? &place.parameter->sharding->group : nullptr;
    slices_of_.push_back(group);
    if (group && std::find(groups_.begin(), groups_.end(), group) == groups_.end()) groups_.push_back(group);
    if (place.size > 0) pieces += (place.range().last - 1) / FlatLayout::block - place.begin / FlatLayout::block + 1;
  }
  first_piece_.push_back(pieces);
}

void Norms::start(int rows) {
  rows_ = rows;
  for (auto& runs : runs_) runs.clear();
}

void Norms::add(Row row, int64_t place, const Tensor& x, int64_t begin) {
  if (x.size() == 0) return;
  const auto i = static_cast<size_t>(place);
  const int64_t skipped = begin / FlatLayout::block - begins_[i] / FlatLayout::block;
  runs_[row].push_back({x, begin, row * first_piece_.back() + first_piece_[i] + skipped});
}

void Norms::finish() {
  Tensor sums = Tensor::zeros({rows_, first_piece_.back()}, DType::f64, device_);
  for (auto& runs : runs_) {
    const auto type = [](const SquareSumsRun& run) { return run.x.dtype(); };
    std::sort(runs.begin(), runs.end(), [&](const auto& a, const auto& b) { return type(a) < type(b); });
    for (auto first = runs.begin(), last = first; first != runs.end(); first = last) {
      last = std::find_if(first, runs.end(), [&](const auto& run) { return type(run) != type(*first); });
      backend(device_).square_sums({first, last}, sums);
    }
    runs.clear();
  }
  if (combine_) combine_(sums);
  sums = sums.to(Device::cpu);
  totals_ = Tensor({rows_, places()}, DType::f64);
  double* total = totals_.mutate<double>();
  for (int row = 0; row < rows_; ++row) {
    const double* of_row = sums.data<double>() + row * first_piece_.back();
    for (size_t i = 0; i < begins_.size(); ++i)
      *total++ = std::accumulate(of_row + first_piece_[i], of_row + first_piece_[i + 1], 0.0);
  }
  add_slices();
}

void Norms::add_slices() {
  for (Communicator* group : groups_) {
    double* total = totals_.mutate<double>();
    for (int64_t i = 0; i < totals_.size(); ++i)
      if (slices_of_[static_cast<size_t>(i % places())] != group && group->rank().value > 0) total[i] = 0;
    group->all_reduce(totals_, totals_);
  }
}

double Norms::of(Row row, int64_t place) const { return std::sqrt(totals_.data<double>()[row * places() + place]); }
double Norms::of_all(Row row) const {
  const double* total = totals_.data<double>() + row * places();
  return std::sqrt(std::accumulate(total, total + places(), 0.0));
}

double clip(double norm, double max_norm) {
  require(max_norm > 0, "clip: the largest norm allowed is ", max_norm, ", not above 0");
  require(std::isfinite(norm), "clip: the norm of the gradients is ", norm,
          "; look for the first loss that is not finite, or leave this step out");
  return norm > max_norm ? max_norm / norm : 1;
}

}  // namespace weft
