// SPDX-License-Identifier: Apache-2.0
#pragma once
// What happens before what: for each stream, by its number, up to which position its work is done before something.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::emulated {

class Clock {
 public:
  uint64_t operator[](size_t stream) const { return stream < positions_.size() ? positions_[stream] : 0; }
  bool has_reached(const Clock& other) const {
    for (size_t i = 0; i < other.positions_.size(); ++i)
      if ((*this)[i] < other.positions_[i]) return false;
    return true;
  }
  void reach(size_t stream, uint64_t position) {
    if (positions_.size() <= stream) positions_.resize(stream + 1);
    positions_[stream] = std::max(positions_[stream], position);
  }
  void reach(const Clock& other) {
    for (size_t i = 0; i < other.positions_.size(); ++i) reach(i, other.positions_[i]);
  }

 private:
  std::vector<uint64_t> positions_;
};

}  // namespace weft::emulated
