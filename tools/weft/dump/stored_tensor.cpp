// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/stored_tensor.h"

namespace weft::verify {
namespace {

// Reads ahead, since ranges are mostly taken in order, and may be short.
class FromFile : public LazyNumbers {
 public:
  FromFile(std::shared_ptr<const SafetensorsFile> file, const SafetensorsFile::Entry& entry, double epsilon)
      : file_(std::move(file)), entry_(entry), variance_(epsilon * epsilon / 3) {}

  void read(int64_t first, int64_t count, double* values, double* variances) const override {
    if (first < first_ || first + count > first_ + std::ssize(ahead_)) fetch(first, count);
    const Eigen::Map<const Eigen::ArrayXd> held(ahead_.data() + (first - first_), count);
    Eigen::Map<Eigen::ArrayXd>(values, count) = held;
    if (variances) Eigen::Map<Eigen::ArrayXd>(variances, count) = variance_ * held.square();
  }

 private:
  static constexpr int64_t at_once = 1 << 14;

  void fetch(int64_t first, int64_t count) const {
    const int64_t taken = std::min(std::max(count, at_once), entry_.shape.size() - first);
    bytes_.resize(static_cast<size_t>(taken) * size_of(entry_.dtype));
    file_->read(entry_, first, taken, bytes_.data());
    ahead_.resize(static_cast<size_t>(taken));
    first_ = first;
    switch (entry_.dtype) {
      case DType::f32: return convert<float>();
      case DType::f64: return convert<double>();
      case DType::bf16: return convert<Eigen::bfloat16>();
      case DType::i64: return convert<int64_t>();
      case DType::u8: return convert<uint8_t>();
    }
  }
  template <class T> void convert() const {
    using Numbers = Eigen::Array<T, Eigen::Dynamic, 1>;
    const Eigen::Map<const Numbers> stored(reinterpret_cast<const T*>(bytes_.data()), std::ssize(ahead_));
    Eigen::Map<Eigen::ArrayXd>(ahead_.data(), std::ssize(ahead_)) = stored.template cast<double>();
  }

  std::shared_ptr<const SafetensorsFile> file_;
  const SafetensorsFile::Entry& entry_;
  double variance_;  // of a number between -1 and 1 times the precision
  mutable int64_t first_ = 0;
  mutable std::vector<char> bytes_;
  mutable std::vector<double> ahead_;
};

}  // namespace

Precision precision_of(const SafetensorsFile::Entry& entry) {
  if (entry.half) return {"f16", 0x1p-10};
  switch (entry.dtype) {
    case DType::bf16: return {"bf16", 0x1p-8};
    case DType::f32: return {"f32", 0x1p-23};
    default: return {};
  }
}

Lazy StoredTensor::lazy(double epsilon) const { return std::make_shared<FromFile>(file_, *entry_, epsilon); }

}  // namespace weft::verify
