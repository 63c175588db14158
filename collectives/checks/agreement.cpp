// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/agreement.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace weft {
namespace {

uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9fb21c651e98df25u;
  return hash ^ hash >> 29;
}

// Four independent chains, because a step of one chain has to wait for the previous multiplication.
uint64_t mixed(uint64_t hash, std::string_view bytes) {
  uint64_t chains[4] = {hash, hash + 1, hash + 2, hash + 3}, words[4];
  size_t i = 0;
  for (; i + sizeof words <= bytes.size(); i += sizeof words) {
    std::memcpy(words, bytes.data() + i, sizeof words);
    for (int c = 0; c < 4; ++c) chains[c] = mixed(chains[c], words[c]);
  }
  std::memset(words, 0, sizeof words);
  if (i < bytes.size()) std::memcpy(words, bytes.data() + i, bytes.size() - i);
  for (int c = 0; c < 4; ++c) hash = mixed(hash, mixed(chains[c], words[c]));
  return hash;
}

std::string position(int64_t element, const Shape& shape) {
  std::string result;
  for (int axis = shape.rank(); axis-- > 0; element /= shape[axis])
    result = std::to_string(element % shape[axis]) + (result.empty() ? "" : ", ") + result;
  return "(" + result + ")";
}

// With just enough digits to identify the number.
std::string exactly(double x, DType dtype) {
  char digits[32];
  const std::to_chars_result end = size_of(dtype) == 8
                                       ? std::to_chars(digits, digits + sizeof digits, x)
                                       : std::to_chars(digits, digits + sizeof digits, static_cast<float>(x));
  return {digits, end.ptr};
}

}  // namespace

uint64_t checksum(const Tensor& x) {
  const Tensor host = x.to(Device::cpu);
  uint64_t hash = mixed(static_cast<uint64_t>(x.dtype()), static_cast<uint64_t>(x.size()));
  for (const int64_t extent : x.shape()) hash = mixed(hash, static_cast<uint64_t>(extent));
  return mixed(hash, {host.data<char>(), host.bytes()});
}

uint64_t checksum(std::string_view text) { return mixed(text.size(), text); }

std::vector<std::string> all_texts(const std::string& mine, Communicator& comm, Site site) {
  const Communicator::Rows sizes = comm.rows_of(static_cast<int64_t>(mine.size()), site);
  Tensor bytes({static_cast<int64_t>(mine.size())}, DType::u8);
  if (!mine.empty()) std::memcpy(bytes.mutate(), mine.data(), mine.size());
  const Tensor all = comm.all_gather_v(bytes, sizes, site);
  std::vector<std::string> result;
  const char* at = all.data<char>();
  for (const int64_t size : sizes) {
    result.emplace_back(at, at + size);
    at += size;
  }
  return result;
}

std::optional<std::string> first_different_line(const std::string& what, std::span<const std::string> texts) {
  const auto line = [](const std::string& text, size_t begin) {
    return "'" + text.substr(begin, text.find('\n', begin) - begin) + "'";
  };
  for (size_t r = 1; r < texts.size(); ++r) {
    const std::string &first = texts[0], &other = texts[r];
    if (first == other) continue;
    const auto differ = std::ranges::mismatch(first, other).in1 - first.begin();
    const size_t begin = differ == 0 ? 0 : first.rfind('\n', static_cast<size_t>(differ) - 1) + 1;  // npos + 1 is 0
    return "ranks 0 and " + text(r) + " " + what + ": " + line(first, begin) + " and " + line(other, begin);
  }
  return std::nullopt;
}

// Only the two ranks compared need to hold a value. The first of them describes the difference to all.
std::string first_difference(const Tensor& x, GroupRank first, GroupRank other, Communicator& comm, Site site) {
  const Tensor host = x.defined() ? x.to(Device::cpu) : Tensor({0}, DType::u8);
  const auto everyones = [&](const std::string& mine) { return all_texts(mine, comm, site); };
  const auto on = [&](GroupRank rank) { return " on rank " + text(comm.global(rank)); };
  const std::vector<std::string> kinds = everyones(text(host.dtype()) + " " + text(host.shape())),
                                 bytes = everyones({host.data<char>(), host.bytes()});
  const auto f = static_cast<size_t>(first.value), o = static_cast<size_t>(other.value);
  if (kinds[f] != kinds[o]) return "it is " + kinds[f] + on(first) + " and " + kinds[o] + on(other);
  std::string found = "it was changed since" + on(other);
  if (comm.rank() == first) {
    const size_t size = size_of(host.dtype());
    const auto differ = std::ranges::mismatch(bytes[f], bytes[o]);
    const auto i = static_cast<size_t>(differ.in1 - bytes[f].begin()) / size;
    const auto value = [&](size_t rank) {
      Tensor element({1}, host.dtype());
      std::memcpy(element.mutate(), bytes[rank].data() + i * size, size);
      return exactly(element.item(), host.dtype());
    };
    if (differ.in1 != bytes[f].end())
      found = "element " + position(static_cast<int64_t>(i), host.shape()) + " is " + value(f) + on(first) + " and " +
              value(o) + on(other);
  }
  return everyones(found)[f];
}

void expect_agreement(const std::string& what, std::span<const NamedTensor> values, Communicator& comm, Site site) {
  const auto count = static_cast<int64_t>(values.size());
  Tensor mine({1, count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) mine.mutate<uint64_t>()[i] = checksum(values[static_cast<size_t>(i)].tensor);
  const Tensor all = comm.all_gather(mine, site);
  const auto* sums = all.data<uint64_t>();
  for (int64_t i = 0; i < count; ++i)
    for (int r = 1; r < comm.size(); ++r)
      if (sums[r * count + i] != sums[i]) {
        const auto& [name, value] = values[static_cast<size_t>(i)];
        fail(
            {what, ": '", name, "' should be equal on all ranks, but ", first_difference(value, {0}, {r}, comm, site)});
      }
}

}  // namespace weft
