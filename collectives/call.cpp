#include "collectives/call.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "collectives/transport.h"

namespace weft {
namespace {

constexpr size_t fingerprint_begin = offsetof(Call, verb), fingerprint_end = offsetof(Call, line);
static_assert((fingerprint_end - fingerprint_begin) % sizeof(uint64_t) == 0, "hashed in whole words");
static_assert(sizeof(Call) % sizeof(uint64_t) == 0 && std::is_trivially_copyable_v<Call>);

bool reduces(Verb verb) {
  return verb == Verb::all_reduce || verb == Verb::reduce_scatter || verb == Verb::reduce_scatter_v ||
         verb == Verb::reduce || (verb >= Verb::scan && verb <= Verb::reverse_exscan);
}

void put(char* to, size_t capacity, const char* from, size_t length) {
  std::memcpy(to, from, std::min(length, capacity - 1));
}

// The end of a path tells more than its beginning.
void put_path(char* to, size_t capacity, const char* path) {
  while (std::strncmp(path, "../", 3) == 0) path += 3;
  const size_t length = std::strlen(path), cut = length < capacity ? 0 : length - (capacity - 1);
  put(to, capacity, path + cut, length - cut);
}

}  // namespace

std::string text(Verb verb) {
  constexpr const char* names[] = {
      "all_reduce",      "all_gather", "all_gather_v", "reduce_scatter", "reduce_scatter_v", "broadcast",    "reduce",
      "gather",          "gather_v",   "scatter",      "scatter_v",      "all_to_all",       "all_to_all_v", "permute",
      "permute back",    "scan",       "exscan",       "reverse scan",   "reverse exscan",   "barrier",      "split",
      "allocate_common", "send",       "receive",      "FINALIZE"};
  return names[static_cast<int>(verb)];
}

std::string text(ReduceOp op) {
  constexpr const char* names[] = {"sum", "mean", "product", "maximum", "minimum"};
  return names[static_cast<int>(op)];
}

uint64_t Call::fingerprint() const {
  uint64_t words[(fingerprint_end - fingerprint_begin) / sizeof(uint64_t)];
  std::memcpy(words, &verb, sizeof words);
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (uint64_t word : words) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

bool Call::matches(const Call& other) const {
  return std::memcmp(&verb, &other.verb, fingerprint_end - fingerprint_begin) == 0;
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
  if (*name) result += std::string(" '") + name + "'";
  return result + " at " + file + ":" + std::to_string(line);
}

Call describe(Verb verb, Site site, int root) {
  Call call;
  call.verb = verb;
  call.root = root;
  call.axes = -1;
  call.line = site.line;
  put(call.name, sizeof call.name, site.name, std::strlen(site.name));
  put_path(call.file, sizeof call.file, site.file);
  return call;
}

Call describe(Verb verb, const Tensor& x, Site site, ReduceOp op, int root, bool uneven) {
  Call call = describe(verb, site, root);
  call.dtype = x.dtype();
  call.op = op;
  call.device = x.device();
  call.axes = x.shape().rank();
  std::copy(x.shape().begin(), x.shape().end(), call.extents.begin());
  if (uneven && call.axes > 0) call.extents[0] = -1;
  return call;
}

Fault wrong_message(const Call& sent, GlobalRank sender, const Call& expected, GlobalRank receiver) {
  return Fault(exit_codes::mismatch, "collective mismatch: a message is not what its receiver expects\n  rank " +
                                         text(sender) + " sent it in " + sent.text() + "\n  rank " + text(receiver) +
                                         " is in " + expected.text());
}

// Without std::string, which would allocate in every call.
Call with_counts(Call call, std::span<const int64_t> counts) {
  constexpr size_t capacity = sizeof call.counts;
  char* const end = call.counts + capacity - 1;
  char* at = call.counts;
  uint64_t hash = 0xcbf29ce484222325u;
  bool fits = true;
  const auto put_text = [&](std::string_view text) {
    fits = fits && at + text.size() <= end;
    if (fits) at = std::copy(text.begin(), text.end(), at);
  };
  for (const int64_t count : counts) {
    char digits[24];
    put_text(at == call.counts ? "[" : ", ");
    put_text({digits, std::to_chars(digits, digits + sizeof digits, count).ptr});
    hash = (hash ^ static_cast<uint64_t>(count)) * 0x100000001b3u;
  }
  put_text(at == call.counts ? "[]" : "]");
  constexpr std::string_view cut = "... ";
  if (!fits) {  // the beginning of the list, and a number that stands for all of it
    at = std::copy(cut.begin(), cut.end(), std::min(at, end - cut.size() - 6));
    at = std::to_chars(at, end, hash % 1000000).ptr;
  }
  std::fill(at, call.counts + capacity, 0);
  return call;
}

}  // namespace weft
