// SPDX-License-Identifier: Apache-2.0
#pragma once
// A tensor that stays in the file of its rank until its numbers are needed.
#include "tools/weft/dump/lazy_numbers.h"
#include "weft/data/files/safetensors.h"

namespace weft::verify {

// The precision of dumped numbers: the relative distance of neighbours, and its name.
struct Precision {
  std::string name = "f64";
  double epsilon = 0x1p-52;

  void lower_to(const Precision& other) {
    if (other.epsilon > epsilon) *this = other;
  }
};
Precision precision_of(const SafetensorsFile::Entry& entry);

class StoredTensor {
 public:
  StoredTensor(std::shared_ptr<const SafetensorsFile> file, const SafetensorsFile::Entry& entry)
      : file_(std::move(file)), entry_(&entry) {}

  const Shape& shape() const { return entry_->shape; }
  Precision precision() const { return precision_of(*entry_); }
  Tensor read() const { return file_->read(entry_->name); }
  Lazy lazy(double epsilon) const;  // rounded to this precision

 private:
  std::shared_ptr<const SafetensorsFile> file_;
  const SafetensorsFile::Entry* entry_;
};

}  // namespace weft::verify
