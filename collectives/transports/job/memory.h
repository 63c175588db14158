// SPDX-License-Identifier: Apache-2.0
#pragma once
// A range of memory that several ranks share, and values in it that can be read while their owner writes them.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {

using Offset = uint64_t;  // from the beginning of the range

// A range of address space, whose pages become real when they are touched or reserved. The processes that use a file
// hold a lock on it. When all of them have ended, the next job of the same user removes the file, or all of it but the
// part that a report has named.
class Memory {
 public:
  static constexpr Offset first = 64;  // the file's mark is before this

  static Memory of_this_process(size_t at_most);
  static Memory new_file(size_t at_most);  // readable by this user only; in /dev/shm, or else in $TMPDIR
  static Memory existing_file(const std::string& path);
  // What stays of a job's file when the job has ended, and a copy of it in memory. An Error names the file if it is
  // none.
  static std::vector<std::byte> bytes_of_file(const std::string& path);
  static Memory copy_of_file(std::span<const std::byte> bytes, const std::string& path);
  // The paths of what may be files of jobs on this machine, and whether a living process uses one.
  static std::vector<std::string> files();
  static bool is_used(const std::string& path);
  Memory(Memory&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        bytes_(other.bytes_),
        file_(std::exchange(other.file_, -1)),
        path_(std::move(other.path_)) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory();

  std::byte* base() const { return base_; }
  size_t size() const { return bytes_; }
  const std::string& path() const { return path_; }  // empty without a file
  bool contains(const void* p) const {
    const auto address = reinterpret_cast<uintptr_t>(p), begin = reinterpret_cast<uintptr_t>(base_);
    return address >= begin && address < begin + bytes_;
  }

  // `reserve` makes pages real, so that running out of memory is a Fault here and not a SIGBUS later. `forget` gives
  // pages back to the system and leaves zeros.
  void reserve(Offset begin, size_t bytes) const;
  void forget(Offset begin, size_t bytes) const;
  // Keeps the first bytes of the file, at most a MiB, for a day after all processes have ended, because a report has
  // named it. A signal handler may call this.
  void keep(size_t bytes) const;
  void remove_file() const;

 private:
  Memory(std::byte* base, size_t bytes, int file, std::string path)
      : base_(base), bytes_(bytes), file_(file), path_(std::move(path)) {}
  static Memory map(size_t bytes, int file, const std::string& path);

  std::byte* base_;
  size_t bytes_;
  int file_;
  std::string path_;
};

// A value with one writer. A reader during a write gets parts of two values, but never undefined behaviour.
template <class T> class RacySnapshot {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0 && std::is_trivially_copyable_v<T>);

 public:
  void store(const T& value) {
    uint64_t words[count];
    std::memcpy(words, &value, sizeof value);
    for (size_t i = 0; i < count; ++i) words_[i].store(words[i], std::memory_order_relaxed);
  }
  T load() const {
    uint64_t words[count];
    for (size_t i = 0; i < count; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    T value;
    std::memcpy(&value, words, sizeof value);
    return value;
  }

 private:
  static constexpr size_t count = sizeof(T) / sizeof(uint64_t);
  std::array<std::atomic<uint64_t>, count> words_;
};

}  // namespace weft
