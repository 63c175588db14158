#pragma once
// Files of named tensors in the safetensors format, which holds nothing but data and is read by most frameworks.
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/descriptor.h"
#include "data/safetensors_header.h"

namespace weft {

// Replaces the file in one step, once all is on the disk: whatever happens, there is the old file or the new one. Holds
// one tensor at a time in the host's memory beside what is there already. Adds checksums; see safetensors_header.h.
void write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                       const Metadata& metadata);
// The same of tensors that are asked for in their order, each once and when its turn comes.
void write_safetensors(const std::filesystem::path& file, std::span<const TensorOutline> tensors,
                       const TensorSource& get, const Metadata& metadata);
std::vector<TensorOutline> outlines(std::span<const NamedTensor> tensors);

// A file opened for reading. It stays readable when its name is given to another file. What is malformed, or does not
// have its checksum, is refused with the file, the tensor and the place.
class SafetensorsFile {
 public:
  using Entry = SafetensorsHeader::Entry;

  explicit SafetensorsFile(std::filesystem::path path);  // reads the header

  const std::filesystem::path& path() const { return path_; }
  const std::vector<Entry>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }
  const std::string& metadata(const std::string& key) const;  // Error if it is not there
  bool checked() const { return header_.checked; }            // whether it has checksums: files of others have none

  const Entry* find(const std::string& name) const;   // null if it is not there
  Tensor read(const std::string& name) const;         // on the CPU
  void read(const Entry& entry, Tensor& into) const;  // in place; same shape and type, on any device
  // Reads everything and keeps nothing. Looks for numbers that are not finite, too, if that is asked for.
  void verify(bool finite = false) const;

 private:
  // Piece by piece, each to where `place` says that the bytes from `at` on should go.
  void read_bytes(const Entry& entry, const std::function<char*(uint64_t at)>& place) const;
  void read_at(uint64_t offset, void* into, size_t bytes) const;
  [[noreturn]] void malformed(const std::string& what) const;

  std::filesystem::path path_;
  Descriptor file_;
  SafetensorsHeader header_;
  std::vector<size_t> by_name_;  // the entries' numbers, sorted by name
  uint64_t first_byte_ = 0;      // of the data
};

}  // namespace weft
