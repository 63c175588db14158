#include "collectives/agreement.h"

#include <cstring>

namespace weft {
namespace {

uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9fb21c651e98df25u;
  return hash ^ hash >> 29;
}

// Of its kind and its bits. Four independent chains, because each step waits for the multiplication before it.
uint64_t checksum(const Tensor& x) {
  const Tensor host = x.to(Device::cpu);
  uint64_t hash = mixed(static_cast<uint64_t>(x.dtype()), static_cast<uint64_t>(x.size()));
  for (const int64_t extent : x.shape()) hash = mixed(hash, static_cast<uint64_t>(extent));
  const auto* bytes = host.data<std::byte>();
  uint64_t chains[4] = {hash, hash + 1, hash + 2, hash + 3}, words[4];
  size_t i = 0;
  for (; i + sizeof words <= host.bytes(); i += sizeof words) {
    std::memcpy(words, bytes + i, sizeof words);
    for (int c = 0; c < 4; ++c) chains[c] = mixed(chains[c], words[c]);
  }
  std::memset(words, 0, sizeof words);
  if (i < host.bytes()) std::memcpy(words, bytes + i, host.bytes() - i);
  for (int c = 0; c < 4; ++c) hash = mixed(hash, mixed(chains[c], words[c]));
  return hash;
}

std::string position(int64_t element, const Shape& shape) {
  std::string result;
  for (int axis = shape.rank(); axis-- > 0; element /= shape[axis])
    result = std::to_string(element % shape[axis]) + (result.empty() ? "" : ", ") + result;
  return "(" + result + ")";
}

// Where the values of the first rank and of another part.
std::string first_difference(const Tensor& x, int other, Communicator& comm, Site site) {
  const Communicator::Rows sizes = comm.rows_of(x.size(), site);
  const std::vector<double> all = comm.all_gather_v(x.reshape({x.size()}), sizes, site).values();
  int64_t begin = 0;
  for (int r = 0; r < other; ++r) begin += sizes[static_cast<size_t>(r)];
  const std::string ranks = " on rank " + text(comm.global({0})) + " and ",
                    rank = " on rank " + text(comm.global({other}));
  if (sizes[static_cast<size_t>(other)] != sizes[0])
    return std::to_string(sizes[0]) + " elements" + ranks + std::to_string(sizes[static_cast<size_t>(other)]) + rank;
  for (int64_t i = 0; i < sizes[0]; ++i) {
    const double a = all[static_cast<size_t>(i)], b = all[static_cast<size_t>(begin + i)];
    if (std::memcmp(&a, &b, sizeof a) != 0)
      return "element " + position(i, x.shape()) + " is " + text(a) + ranks + text(b) + rank;
  }
  return "their shapes or types differ" + ranks.substr(0, ranks.size() - 5) + " and" + rank;
}

}  // namespace

void expect_agreement(const std::string& what, std::span<const Named> values, Communicator& comm, Site site) {
  const auto count = static_cast<int64_t>(values.size());
  Tensor mine({1, count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) mine.mutate<uint64_t>()[i] = checksum(values[static_cast<size_t>(i)].value);
  const Tensor all = comm.all_gather(mine, site);
  const auto* sums = all.data<uint64_t>();
  for (int64_t i = 0; i < count; ++i)
    for (int r = 1; r < comm.size(); ++r)
      if (sums[r * count + i] != sums[i]) {
        const Named& value = values[static_cast<size_t>(i)];
        fail({what, ": '", value.name, "' should be equal on all ranks, but ",
              first_difference(value.value, r, comm, site)});
      }
}

}  // namespace weft
