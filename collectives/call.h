// SPDX-License-Identifier: Apache-2.0
#pragma once
// The description of a call to a group, in a fixed-size form that fits into shared memory. The ranks compare their
// calls before any data move, and reports show them after a fault.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/collectives/fault.h"
#include "weft/engine/tensor/tensor.h"

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
  custom,  // of a program
  barrier,
  split,
  allocate_common,
  send,
  receive,
  finalize
};
// What a rank reads of others in a call.
enum class Movement : uint8_t {
  nothing,
  portions,       // of any ranks
  one_to_one,     // all bytes of at most one rank
  one_to_all,     // all bytes of one rank, which all read
  gathering,      // all bytes of every rank, as to compare something
  sum,            // the sum of all
  shares,         // its share of the sum of all; all shares have one size
  uneven_shares,  // the same, of several sizes
  some_sums,      // sums of some ranks, or none: a reduce to a root, a scan
  unknown,        // what a program says
};

struct VerbTraits {
  Verb verb;
  const char* name;
  Movement movement;
};
// Every verb, in the order of its enumerators.
inline constexpr VerbTraits all_verbs[] = {
    {Verb::all_reduce, "all_reduce", Movement::sum},
    {Verb::all_gather, "all_gather", Movement::portions},
    {Verb::all_gather_v, "all_gather_v", Movement::portions},
    {Verb::reduce_scatter, "reduce_scatter", Movement::shares},
    {Verb::reduce_scatter_v, "reduce_scatter_v", Movement::uneven_shares},
    {Verb::broadcast, "broadcast", Movement::one_to_all},
    {Verb::reduce, "reduce", Movement::some_sums},
    {Verb::gather, "gather", Movement::portions},
    {Verb::gather_v, "gather_v", Movement::portions},
    {Verb::scatter, "scatter", Movement::portions},
    {Verb::scatter_v, "scatter_v", Movement::portions},
    {Verb::all_to_all, "all_to_all", Movement::portions},
    {Verb::all_to_all_v, "all_to_all_v", Movement::portions},
    {Verb::permute, "permute", Movement::one_to_one},
    {Verb::permute_back, "permute back", Movement::one_to_one},
    {Verb::scan, "scan", Movement::some_sums},
    {Verb::exscan, "exscan", Movement::some_sums},
    {Verb::reverse_scan, "reverse scan", Movement::some_sums},
    {Verb::reverse_exscan, "reverse exscan", Movement::some_sums},
    {Verb::custom, "custom", Movement::unknown},
    {Verb::barrier, "barrier", Movement::nothing},
    {Verb::split, "split", Movement::nothing},
    {Verb::allocate_common, "allocate_common", Movement::nothing},
    {Verb::send, "send", Movement::one_to_one},
    {Verb::receive, "receive", Movement::nothing},
    {Verb::finalize, "FINALIZE", Movement::nothing},
};
constexpr const VerbTraits& traits(Verb verb) { return all_verbs[static_cast<size_t>(verb)]; }
static_assert(std::size(all_verbs) == static_cast<size_t>(Verb::finalize) + 1, "each verb has a row");
static_assert(std::ranges::all_of(all_verbs, [](const VerbTraits& row) { return traits(row.verb).verb == row.verb; }),
              "in the order of the enumerators");

constexpr const char* name(Verb verb) { return traits(verb).name; }
inline std::string text(Verb verb) { return name(verb); }

enum class ReduceOp : uint8_t { sum, mean, product, maximum, minimum };
std::string text(ReduceOp op);

// A text of fixed size that allocates nothing. A longer text is cut after the last piece that fits, and followed by a
// hash of all pieces.
class ShortText {
 public:
  static constexpr size_t capacity = 32;  // with the zero at its end
  void add(std::string_view piece);
  void add(double number);
  void add(int64_t number);
  const std::array<char, capacity>& characters() const { return text_; }

 private:
  std::array<char, capacity> text_{};
  size_t size_ = 0, kept_ = 0;  // of all pieces, and of those that leave room for the hash
  uint64_t hash_ = 0xcbf29ce484222325u;
};

// Where in the program a collective was called, the caller's name for its tensor, and anything else that must be equal
// on every rank, such as the options of a loss.
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
std::string text(const Site& site);  // "losses/contrastive/clip.cpp:42"

// Trivially copyable. Texts are cut to fit, but names are compared as a whole, by their hashes.
struct Call {
  uint64_t sequence = 0;  // the number of this call in its group, set by the transport
  // The members from here to `line` must be equal on every rank. The fingerprint is their hash.
  Verb verb = Verb::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  Device device = Device::cpu;
  int32_t root = -1;
  std::array<int64_t, Shape::max_rank> extents{};  // -1 for an axis whose extent may differ between ranks
  int32_t axes = 0;
  char name[28] = {};
  char counts[ShortText::capacity] = {};  // counts of rows, sources, or the options of the site
  uint64_t whole_name = 0;                // the hash of a name that is cut
  // The site may differ, because ranks may make the same call in different branches of a program.
  int32_t line = 0;
  char file[51] = {};
  bool has_origin = false;  // whether the tensor has an origin (Tensor::origin)

  uint64_t fingerprint() const;           // equal for calls that match; different for others unless the hashes collide
  bool matches(const Call& other) const;  // whether two ranks are in the same call
  // Whether a send and a receive are of the same message; the two ranks may name it differently.
  bool same_message(const Call& other) const;
  std::string text() const;  // "all_reduce sum f32 (512, 10) 'logits' at losses/contrastive/clip.cpp:42"
};
Call with_name(Call call, std::string_view name);
Call with_counts(Call call, std::span<const int64_t> counts);
// `uneven`: the first extent may differ between ranks.
Call describe(Verb verb, const Tensor& x, Site site, ReduceOp op = ReduceOp::sum, int root = -1, bool uneven = false);
Call describe(Verb verb, Site site, int root = -1);  // a call without a tensor

// The error of a receiver whose message is not the one it expects.
Fault wrong_message(const Call& sent, GlobalRank sender, const Call& expected, GlobalRank receiver);

}  // namespace weft
