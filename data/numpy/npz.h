// SPDX-License-Identifier: Apache-2.0
#pragma once
// NumPy's .npz: arrays by name, each a .npy in a ZIP archive, stored or deflated.
#include <span>
#include <string>
#include <vector>

#include "weft/data/numpy/npy.h"
#include "weft/data/numpy/zip_directory.h"
#include "weft/engine/tensor/named_tensor.h"

namespace weft {

// Replaces the file in one step, once all is on the disk. Arrays are stored, and may be of any size.
void write_npz(const std::filesystem::path& file, std::span<const NamedTensor> arrays);

// A file opened for reading. Opening it reads the directory, and `read` one array, whose checksum has to be right.
class NpzFile {
 public:
  static constexpr uint64_t default_max_bytes = uint64_t{1} << 28;

  // A deflated entry can unpack to a thousand times its size, so an archive that would unpack to more than eight times
  // its own size and `max_bytes` is refused before memory is taken. No tensor takes more than that either.
  explicit NpzFile(std::filesystem::path path, uint64_t max_bytes = default_max_bytes);

  const std::filesystem::path& path() const { return file_.path(); }
  std::vector<std::string> names() const;      // of the arrays, sorted
  Tensor read(const std::string& name) const;  // on the CPU

 private:
  InputFile file_;
  uint64_t max_bytes_;
  std::vector<ZipEntry> arrays_;  // sorted by their names, which lack the suffix
};

}  // namespace weft
