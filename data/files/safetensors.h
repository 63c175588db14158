// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files of named tensors in the safetensors format, which contains only data, no code, and which most frameworks can
// read.
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/data/files/input_file.h"
#include "weft/data/files/safetensors_header.h"

namespace weft {

// Replaces the file atomically after everything is on the disk, so that either the old file or the new one exists.
// Copies at most one tensor at a time to host memory. Adds checksums; see safetensors_header.h.
void write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                       const Metadata& metadata);
// The same, but requests the tensors one by one: calls `get` once for each, in order.
void write_safetensors(const std::filesystem::path& file, std::span<const TensorOutline> tensors,
                       const TensorSource& get, const Metadata& metadata);
std::vector<TensorOutline> outlines(std::span<const NamedTensor> tensors);

// A file opened for reading. It stays readable if another file replaces it. Malformed files and wrong checksums are
// Errors that name the file, the tensor and the position.
class SafetensorsFile {
 public:
  using Entry = SafetensorsHeader::Entry;

  explicit SafetensorsFile(std::filesystem::path path);  // reads the header

  const std::filesystem::path& path() const { return file_.path(); }
  uint64_t bytes() const { return file_.bytes(); }
  const std::vector<Entry>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }
  const std::string& metadata(const std::string& key) const;  // Error if the key is missing
  bool checked() const { return header_.checked; }            // whether it has checksums; other programs write none

  const Entry* find(const std::string& name) const;   // null if there is no such tensor
  Tensor read(const std::string& name) const;         // on the CPU
  void read(const Entry& entry, Tensor& into) const;  // in place; same shape and type, on any device
  // Elements `first` to `first + count`, without a look at the checksum, which is of all.
  void read(const Entry& entry, int64_t first, int64_t count, void* into) const;
  // Reads the whole file to verify its checksums and, if `finite`, that all values are finite.
  void verify(bool finite = false) const;

 private:
  // Reads in pieces; place(at) returns the destination of the piece that begins at byte `at` of the tensor.
  void read_bytes(const Entry& entry, const std::function<char*(uint64_t at)>& place) const;

  InputFile file_;
  SafetensorsHeader header_;
  std::vector<size_t> by_name_;  // the indices of entries, sorted by name
  uint64_t first_byte_ = 0;      // of the data
};

}  // namespace weft
