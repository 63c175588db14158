// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/call.h"

#include "weft/engine/tensor/origin.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace weft {
namespace {

constexpr size_t fingerprint_begin = offsetof(Call, verb), fingerprint_end = offsetof(Call, line);
static_assert((fingerprint_end - fingerprint_begin) % sizeof(uint64_t) == 0, "hashed in whole words");
static_assert(sizeof(Call) % sizeof(uint64_t) == 0 && std::is_trivially_copyable_v<Call>);

const std::byte* compared(const Call& call) { return reinterpret_cast<const std::byte*>(&call) + fingerprint_begin; }

constexpr uint64_t hash_of_nothing = 0xcbf29ce484222325u;
uint64_t hashed(uint64_t hash, std::string_view piece) {
  for (const char c : piece) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

bool reduces(Verb verb) {
  const Movement movement = traits(verb).movement;
  return movement == Movement::sum || movement == Movement::shares || movement == Movement::uneven_shares ||
         movement == Movement::some_sums;
}

void put(char* to, size_t capacity, const char* from, size_t length) {
  std::memcpy(to, from, std::min(length, capacity - 1));
}

// The path as messages show it, relative to the root of the project. The compiler sees it relative to the build folder.
const char* path_from_root(const char* path) {
  while (const char* up = std::strstr(path, "../")) path = up + 3;
  return path;
}
// A name that does not fit is cut to its two ends, and the call gets a hash of all of it.
void put_name(Call& call, std::string_view name) {
  constexpr std::string_view cut = "..";
  constexpr size_t max_size = sizeof call.name - 1, head = 11, tail = max_size - head - cut.size();
  if (name.size() <= max_size) return put(call.name, sizeof call.name, name.data(), name.size());
  char* at = std::copy_n(name.data(), head, call.name);
  at = std::copy(cut.begin(), cut.end(), at);
  std::copy_n(name.data() + name.size() - tail, tail, at);
  call.whole_name = hashed(hash_of_nothing, name);
}
// A path that does not fit loses its beginning.
void put_path(char* to, size_t capacity, const char* path) {
  path = path_from_root(path);
  const size_t length = std::strlen(path), cut = length < capacity ? 0 : length - (capacity - 1);
  put(to, capacity, path + cut, length - cut);
}

}  // namespace

std::string text(ReduceOp op) {
  constexpr const char* names[] = {"sum", "mean", "product", "maximum", "minimum"};
  return names[static_cast<int>(op)];
}

uint64_t Call::fingerprint() const {
  uint64_t words[(fingerprint_end - fingerprint_begin) / sizeof(uint64_t)];
  std::memcpy(words, compared(*this), sizeof words);
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (uint64_t word : words) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

bool Call::matches(const Call& other) const {
  return std::memcmp(compared(*this), compared(other), fingerprint_end - fingerprint_begin) == 0;
}

bool Call::same_message(const Call& other) const {
  return dtype == other.dtype && axes == other.axes && extents == other.extents;
}

std::string Call::text() const {
  std::string result = weft::text(verb);
  if (reduces(verb)) result += " " + weft::text(op);
  if (axes >= 0) {
    result += " " + weft::text(dtype) + " (";
    for (int axis = 0; axis < axes; ++axis)
      result += (axis ? ", " : "") + (extents[axis] < 0 ? std::string("*") : std::to_string(extents[axis]));
    result += ")";
  }
  if (device != Device::cpu) result += " on " + weft::text(device);
  if (root >= 0)
    result += (verb == Verb::send      ? " to rank "
               : verb == Verb::receive ? " from rank "
                                       : " root ") +
              std::to_string(root);
  if (*counts) result += std::string(" ") + counts;
  if (*name) result += std::string(" '") + name + (whole_name ? "~" + std::to_string(whole_name % 1000000) : "") + "'";
  return result + " at " + file + ":" + std::to_string(line);
}

Call describe(Verb verb, Site site, int root) {
  Call call;
  call.verb = verb;
  call.root = root;
  call.axes = -1;
  call.line = site.line;
  put_name(call, site.name);
  std::copy(site.options.begin(), site.options.end(), call.counts);
  put_path(call.file, sizeof call.file, site.file);
  return call;
}

Call describe(Verb verb, const Tensor& x, Site site, ReduceOp op, int root, bool uneven) {
  Call call = describe(verb, site, root);
  call.dtype = x.dtype();
  call.op = op;
  call.device = x.device();
  call.axes = x.shape().rank();
  call.has_origin = Origin::bits_of(x) != 0;
  std::copy(x.shape().begin(), x.shape().end(), call.extents.begin());
  if (uneven && call.axes > 0) call.extents[0] = -1;
  return call;
}

Fault wrong_message(const Call& sent, GlobalRank sender, const Call& expected, GlobalRank receiver) {
  return Fault(exit_codes::mismatch, "collective mismatch: a message is not what its receiver expects\n  rank " +
                                         text(sender) + " sent it in " + sent.text() + "\n  rank " + text(receiver) +
                                         " is in " + expected.text());
}

std::string text(const Site& site) { return std::string(path_from_root(site.file)) + ":" + std::to_string(site.line); }

void ShortText::add(std::string_view piece) {
  constexpr std::string_view cut = "... ";
  constexpr size_t max_size = capacity - 1, digits = 6;
  hash_ = hashed(hash_, piece);
  const bool fits = size_ + piece.size() <= max_size;
  if (fits) std::copy(piece.begin(), piece.end(), text_.begin() + static_cast<std::ptrdiff_t>(size_));
  size_ = fits ? size_ + piece.size() : capacity;
  if (size_ + cut.size() + digits <= max_size) kept_ = size_;
  if (fits) return;
  char* at = std::copy(cut.begin(), cut.end(), text_.data() + kept_);
  at = std::to_chars(at, text_.data() + max_size, hash_ % 1000000).ptr;
  std::fill(at, text_.data() + capacity, 0);
}
void ShortText::add(double number) {
  char digits[32];
  add({digits, static_cast<size_t>(std::to_chars(digits, digits + sizeof digits, number).ptr - digits)});
}
void ShortText::add(int64_t number) {
  char digits[24];
  add({digits, static_cast<size_t>(std::to_chars(digits, digits + sizeof digits, number).ptr - digits)});
}

Call with_name(Call call, std::string_view name) {
  std::fill(std::begin(call.name), std::end(call.name), '\0');
  call.whole_name = 0;
  put_name(call, name);
  return call;
}

Call with_counts(Call call, std::span<const int64_t> counts) {
  ShortText text;
  text.add("[");
  for (size_t i = 0; i < counts.size(); ++i) {
    if (i > 0) text.add(", ");
    text.add(counts[i]);
  }
  text.add("]");
  std::copy(text.characters().begin(), text.characters().end(), call.counts);
  return call;
}

}  // namespace weft
