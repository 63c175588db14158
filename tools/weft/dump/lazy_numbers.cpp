// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/lazy_numbers.h"

#include <algorithm>

namespace weft::verify {
namespace {

class Held : public LazyNumbers {
 public:
  explicit Held(Matrix values) : values_(std::move(values)) {}
  void read(int64_t first, int64_t count, double* values, double* variances) const override {
    std::copy_n(values_.data() + first, count, values);
    if (variances) std::fill_n(variances, count, 0);
  }

 private:
  Matrix values_;
};

class Sum : public LazyNumbers {
 public:
  Sum(std::vector<Lazy> terms, double factor, double divisor)
      : terms_(std::move(terms)), factor_(factor), divisor_(divisor) {}

  void read(int64_t first, int64_t count, double* values, double* variances) const override {
    if (first != first_ || count != sum_.size() || (variances && variances_.size() != count))
      add_up(first, count, variances != nullptr);
    std::copy_n(sum_.data(), count, values);
    if (variances) std::copy_n(variances_.data(), count, variances);
  }

 private:
  void add_up(int64_t first, int64_t count, bool with_variances) const {
    first_ = first;
    sum_ = Eigen::ArrayXd::Zero(count);
    variances_ = Eigen::ArrayXd::Zero(with_variances ? count : 0);
    Eigen::ArrayXd values(count), variances(variances_.size());
    for (const Lazy& term : terms_) {
      term->read(first, count, values.data(), with_variances ? variances.data() : nullptr);
      sum_ += values;
      variances_ += variances;
    }
    if (factor_ != 1) sum_ *= factor_;
    if (divisor_ != 1) sum_ /= divisor_;
    variances_ *= (factor_ / divisor_) * (factor_ / divisor_);
  }

  std::vector<Lazy> terms_;
  double factor_, divisor_;
  mutable int64_t first_ = 0;
  mutable Eigen::ArrayXd sum_, variances_;
};

class Alternating : public LazyNumbers {
 public:
  explicit Alternating(std::vector<Runs> runs) : runs_(std::move(runs)) {
    for (const Runs& each : runs_) period_ += each.length;
  }
  void read(int64_t first, int64_t count, double* values, double* variances) const override {
    for (int64_t at = first, end = first + count; at < end;) {
      const int64_t round = at / period_;
      int64_t within = at % period_;
      auto run = runs_.begin();
      for (; within >= run->length; ++run) within -= run->length;
      const int64_t taken = std::min(run->length - within, end - at);
      run->source->read(run->begin + round * run->stride + within, taken, values, variances);
      at += taken;
      values += taken;
      if (variances) variances += taken;
    }
  }

 private:
  std::vector<Runs> runs_;
  int64_t period_ = 0;
};

}  // namespace

Lazy lazy(Matrix values) { return std::make_shared<Held>(std::move(values)); }
Lazy lazy_sum(std::vector<Lazy> terms, double factor, double divisor) {
  return std::make_shared<Sum>(std::move(terms), factor, divisor);
}
Lazy alternating(std::vector<Runs> runs) { return std::make_shared<Alternating>(std::move(runs)); }

}  // namespace weft::verify
