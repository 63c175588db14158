#include "optim/norms.h"

#include <cmath>

#include "engine/backend.h"

namespace weft {

static_assert(FlatLayout::block == SquareSumsRun::block);

Norms::Norms(const FlatLayout& layout, Combine combine) : device_(layout.device()), combine_(std::move(combine)) {
  int64_t pieces = 0;
  for (const Place& place : layout.places()) {
    first_piece_.push_back(pieces);
    begins_.push_back(place.begin);
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
    backend(device_).square_sums(runs, sums);
    runs.clear();
  }
  if (combine_) combine_(sums);
  sums_ = sums.to(Device::cpu);
}

double Norms::of(Row row, int64_t place) const {
  const auto i = static_cast<size_t>(place);
  return root_of(row, first_piece_[i], first_piece_[i + 1]);
}
double Norms::of_all(Row row) const { return root_of(row, 0, first_piece_.back()); }

double Norms::root_of(Row row, int64_t first, int64_t last) const {
  const double* sums = sums_.data<double>() + row * first_piece_.back();
  double total = 0;
  for (int64_t i = first; i < last; ++i) total += sums[i];
  return std::sqrt(total);
}

double clip(double norm, double most) {
  require(most > 0, "clip: the largest norm allowed is ", most, ", not above 0");
  require(std::isfinite(norm), "clip: the norm of the gradients is ", norm,
          "; look for the first loss that is not finite, or leave this step out");
  return norm > most ? most / norm : 1;
}

}  // namespace weft
