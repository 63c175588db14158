#pragma once
// What a rank is about to do together with its group, in a fixed-size form that fits into shared memory: compared
// across the group before any data move, and what a report shows after a fault.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/tensor.h"

namespace weft {

// A rank's number in its group, and in the whole job. Roots and peers are always group ranks.
struct GroupRank {
  int value = 0;
  auto operator<=>(const GroupRank&) const = default;
};
struct GlobalRank {
  int value = 0;
  auto operator<=>(const GlobalRank&) const = default;
};
inline std::string text(GroupRank rank) { return text(rank.value); }
inline std::string text(GlobalRank rank) { return text(rank.value); }

enum class Verb : uint8_t {
  all_reduce,
  all_gather,
  all_gather_v,
  reduce_scatter,
  reduce_scatter_v,
  broadcast,
  reduce,
  gather,
  gather_v,
  scatter,
  scatter_v,
  all_to_all,
  all_to_all_v,
  permute,
  permute_back,
  scan,
  exscan,
  reverse_scan,
  reverse_exscan,
  barrier,
  split,
  allocate_common,
  send,
  receive,
  finalize
};
const char* name(Verb verb);
inline std::string text(Verb verb) { return name(verb); }

enum class ReduceOp : uint8_t { sum, mean, product, maximum, minimum };
std::string text(ReduceOp op);

// A text in a fixed place, made without allocating. Of one that is too long it keeps the beginning, by whole pieces,
// and a number that stands for all of it.
class ShortText {
 public:
  static constexpr size_t capacity = 32;  // with the zero at its end
  void add(std::string_view piece);
  void add(double number);
  void add(int64_t number);
  const std::array<char, capacity>& characters() const { return text_; }

 private:
  std::array<char, capacity> text_{};
  size_t size_ = 0, kept_ = 0;  // of all pieces, and of those before a number must stand
  uint64_t hash_ = 0xcbf29ce484222325u;
};

// Where in the program a collective was called, what the caller named its tensor, and what else has to be equal on
// every rank, such as the options of a loss.
struct Site {
  const char* file;
  int line;
  const char* name;
  std::array<char, ShortText::capacity> options{};
  static Site here(const char* name = "", const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line, name};
  }
  Site named(const char* other) const { return {file, line, other, options}; }
};
std::string text(const Site& site);  // "losses/clip.cpp:42"

// Trivially copyable; the texts are cut to fit. Names are compared as a whole.
struct Call {
  uint64_t sequence = 0;  // the group's count of calls, set by the transport
  // The fingerprint: what has to be equal on every rank.
  Verb verb = Verb::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  Device device = Device::cpu;
  int32_t root = -1;
  std::array<int64_t, Shape::max_rank> extents{};  // -1 for an axis whose extent may differ between ranks
  int32_t axes = 0;
  char name[28] = {};
  char counts[ShortText::capacity] = {};  // what else must be equal: counts of rows, sources, else options
  uint64_t whole_name = 0;                // a number for one that is cut
  // The site may differ: branches of a program may meet in one collective.
  int32_t line = 0;
  char file[43] = {};
  bool has_origin = false;  // of what is sent: Tensor::origin

  uint64_t fingerprint() const;           // equal for calls that match; different, but for bad luck, for others
  bool matches(const Call& other) const;  // whether two ranks mean the same call
  bool same_message(
      const Call& other) const;  // as matches, for send and receive; each end may have its own name for it
  std::string text() const;      // "all_reduce sum f32 (512, 10) 'logits' at losses/clip.cpp:42"
};
// `uneven`: the first extent is this rank's own affair.
Call with_counts(Call call, std::span<const int64_t> counts);
Call describe(Verb verb, const Tensor& x, Site site, ReduceOp op = ReduceOp::sum, int root = -1, bool uneven = false);
Call describe(Verb verb, Site site, int root = -1);  // a call without a tensor

}  // namespace weft
