// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every transport must do. All ranks of a group call each check, which throws an Error with its name on failure;
// so threads and MPI processes share them.
#include <vector>

#include "weft/collectives/fold.h"

namespace weft::checks {

using Bytes = std::vector<std::byte>;

inline Transport::Bytes bytes(const std::vector<float>& x) { return std::as_bytes(std::span(x)); }

// Byte i of rank r's data in a round.
inline std::byte pattern(int r, size_t i, int round = 0) {
  return static_cast<std::byte>((static_cast<size_t>(r) * 131 + i * 7 + static_cast<size_t>(round) * 29) & 255);
}
Bytes shown_by(int r, size_t size, int round = 0);
inline Call call(Verb verb, Site site = Site::here()) { return describe(verb, site); }
void barrier(Transport& group);

// The sum of all ranks' floats, on all ranks.
void add_all(Transport& group, Transport::Bytes mine, std::span<std::byte> result,
             const Call& of = call(Verb::all_reduce), bool in_any_order = false);
inline float element(int r, size_t i) { return static_cast<float>((i * 7 + static_cast<size_t>(r) * 13) % 101) / 7.0f; }

// Rank r shows `size - r * uneven` bytes, and every rank reads them all.
void all_see_all(Transport& group, size_t size, size_t uneven = 0, int round = 0);

// The sum in the order of the tree, bit by bit; in place or not, between the given kinds of memory.
void all_sum(Transport& group, std::span<float> x, std::span<float> y);
void all_sum(Transport& group, size_t count, bool in_place);

// Each rank sends `count` messages to each rank, itself included, and receives them from the last rank to the first.
void messages_arrive_in_order(Transport& group, int count, size_t size);

// All of the above in many sizes, started collectives, memory that ranks have in common, and groups of groups.
void everything_works(Transport& group);

// Creates many groups, uses each in every way, and drops it at a different time on each rank, with collectives left
// unfinished.
void groups_come_and_go(Transport& world, int count);

// The resident memory of this process, shared or not.
size_t resident_bytes();
bool sanitized();            // whether this program was built with a sanitizer
size_t kept_by_allocator();  // the most bytes of freed memory that may stay resident
size_t open_files();

}  // namespace weft::checks
