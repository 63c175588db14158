// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/transport_checks.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace weft::checks {

Bytes shown_by(int r, size_t size, int round) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = pattern(r, i, round);
  return bytes;
}

void add_all(Transport& group, Transport::Bytes mine, std::span<std::byte> result, const Call& of, bool in_any_order) {
  std::vector<int> everyone(static_cast<size_t>(group.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const Fold fold{everyone, of.op, DType::f32, Device::cpu, true};
  group.reduce(of, mine, result, {{[](int, int) { return true; }, {}, true, in_any_order}, fold});
}

void all_see_all(Transport& group, size_t size, size_t uneven, int round) {
  const auto size_of_rank = [&](int r) { return size - std::min(size, static_cast<size_t>(r) * uneven); };
  const Bytes mine = shown_by(group.rank(), size_of_rank(group.rank()), round);
  size_t next = 0;
  group.expose(call(Verb::all_gather_v), mine, size, [&](const Transport::Part& part) {
    require(part.first == next && part.last > part.first && part.last <= size, "expose: part ", part.first, " to ",
            part.last);
    next = part.last;
    for (int r = 0; r < group.size(); ++r)
      for (size_t i = part.first; i < std::min(part.last, size_of_rank(r)); ++i)
        require(part.peers[static_cast<size_t>(r)][i - part.first] == pattern(r, i, round), "expose: byte ", i,
                " of rank ", r, " of ", size);
  });
  require(next == size, "expose: parts end at ", next, " of ", size);
}

namespace {

float sum_over_ranks(const std::vector<int>& ranks, size_t i) {
  return fold_over_ranks(
      ranks, [&](int r) { return element(r, i); }, std::plus<float>());
}

std::vector<float> sums_over_ranks(int ranks, size_t count) {
  std::vector<int> everyone(static_cast<size_t>(ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  std::vector<float> sums(count);
  for (size_t i = 0; i < count; ++i) sums[i] = sum_over_ranks(everyone, i);
  return sums;
}

}  // namespace

void all_sum(Transport& group, std::span<float> x, std::span<float> y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] = element(group.rank(), i);
  add_all(group, std::as_bytes(x), std::as_writable_bytes(y));
  const std::vector<float> sums = sums_over_ranks(group.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) require(y[i] == sums[i], "reduce: element ", i, " of ", x.size(), " is ", y[i]);
}

void all_sum(Transport& group, size_t count, bool in_place) {
  std::vector<float> x(count), y(in_place ? 0 : count);
  all_sum(group, x, in_place ? x : y);
}

namespace {

// The same for a sum whose inputs peers may read in place. Ranks below `private_below` still use private memory.
void all_sum_shown(Transport& group, size_t count, bool in_place, int private_below = 0) {
  const StorageHandle a = group.allocate_shown(count * sizeof(float)), b = group.allocate_shown(count * sizeof(float));
  std::vector<float> own(count);
  const std::span x = group.rank() < private_below ? std::span(own) : std::span(static_cast<float*>(a->data), count);
  all_sum(group, x, in_place ? x : std::span(static_cast<float*>(b->data), count));
}

// Started collectives that are finished later in another order, or never, with results dropped or kept; more of them
// than fit at once, and complete collectives in between.
void started_collectives_work(Transport& group, size_t size, int at_once) {
  const auto shown = [&](int r, int round) {  // in shared memory or not
    Tensor x({static_cast<int64_t>(size)}, DType::u8);
    if (round % 3 == 0) x = Tensor(group.allocate_shown(size), 0, x.shape(), DType::u8);
    const Bytes bytes = shown_by(r, size, round);
    std::copy(bytes.begin(), bytes.end(), x.mutate<std::byte>());
    return x;
  };
  const auto start = [&](int round) {
    Tensor x = shown(group.rank(), round);
    if (round % 2) return group.start(call(Verb::all_gather), std::move(x), size);
    auto started = group.start(call(Verb::all_gather), x, size);
    std::fill_n(x.mutate<std::byte>(), size, std::byte{255});  // the call took a copy
    return started;
  };
  const auto finish = [&](Transport::Request& started, int round) {
    started.finish([&](const Transport::Part& part) {
      require(part.first == 0 && part.last == size, "start: one part, not ", part.first, " to ", part.last);
      for (int r = 0; r < group.size(); ++r)
        for (size_t i = 0; i < size; ++i)
          require(part.peers[static_cast<size_t>(r)][i] == pattern(r, i, round), "start: byte ", i, " of rank ", r,
                  " of round ", round);
    });
  };
  constexpr int rounds = 3;
  for (int first = 0; first < at_once * rounds; first += at_once) {
    std::vector<std::unique_ptr<Transport::Request>> started;
    for (int i = 0; i < at_once; ++i) started.push_back(start(first + i));
    all_see_all(group, 100);
    for (int i = at_once; i-- > group.rank() % 3;) finish(*started[static_cast<size_t>(i)], first + i);
  }
}

void common_memory_works(Transport& group) {
  for (const size_t count : {1, 5'000, 300'001}) {
    const StorageHandle common = group.allocate_common(count * sizeof(float), Site::here());
    if (!common) return;  // none if ranks are on several nodes
    const std::span result(static_cast<float*>(common->data), count);
    require(std::all_of(result.begin(), result.end(), [](float x) { return x == 0; }), "common memory is zeros");
    barrier(group);
    for (int round = 0; round < 2; ++round) {
      std::vector<float> x(count);
      all_sum(group, x, result);
      barrier(group);
    }
    const StorageHandle shown = group.allocate_shown(count * sizeof(float));
    all_sum(group, std::span(static_cast<float*>(shown->data), count), result);
    barrier(group);
    if (group.rank() == group.size() - 1) result[count - 1] = 7;
    barrier(group);
    require(result[count - 1] == 7, "common memory is not common");
  }
}

// The result of a sum in shared memory is complete only when the last rank has added its share, and is not written
// to after the first rank has it.
void common_results_are_complete(Transport& group) {
  for (const size_t count : {100, 5'000, 100'001}) {
    const StorageHandle common = group.allocate_common((count + 16) * sizeof(float), Site::here());
    if (!common) return;
    const std::span result(static_cast<float*>(common->data) + 16, count);
    std::vector<float> x(count);
    for (size_t i = 0; i < count; ++i) x[i] = element(group.rank(), i);
    const std::vector<float> sums = sums_over_ranks(group.size(), count);
    for (int round = 0; round < 60; ++round) {
      add_all(group, bytes(x), std::as_writable_bytes(result));
      if (group.rank() == round % group.size()) {
        require(std::equal(result.begin(), result.end(), sums.begin()), "reduce: elements came after the result");
        std::fill(result.begin(), result.end(), -1.0f);
      }
      barrier(group);
      require(std::all_of(result.begin(), result.end(), [](float y) { return y == -1; }), "reduce: written too late");
      barrier(group);
    }
  }
}

// Shared memory lives until its last holder drops it, whatever the order; the first rank reuses it if it is the last.
void common_memory_is_used_again(Transport& group) {
  constexpr size_t size = 10'000;
  const auto all = [](const StorageHandle& memory, char value) {
    const char* bytes = static_cast<const char*>(memory->data);
    return std::all_of(bytes, bytes + size, [=](char byte) { return byte == value; });
  };
  StorageHandle first = group.allocate_common(size, Site::here());
  if (!first) return;
  barrier(group);
  if (group.rank() == 0) {
    std::memset(first->data, 1, size);
    first = {};
  }
  StorageHandle second = group.allocate_common(size, Site::here());
  require(all(second, 0) && (!first || all(first, 1)), "common memory is given to others while somebody holds it");
  barrier(group);
  const void* const place = second->data;
  if (group.rank() == 0) std::memset(second->data, 2, size);
  if (group.rank() > 0) second = {};
  barrier(group);
  second = {};
  const StorageHandle third = group.allocate_common(size, Site::here());
  require(third->data == place || group.rank() > 0, "common memory is not used again");
  require(all(third, 0), "common memory that is used again is not zeros");
}

}  // namespace

void messages_arrive_in_order(Transport& group, int count, size_t size) {
  for (int k = 0; k < count; ++k)
    for (int to = 0; to < group.size(); ++to) group.send(call(Verb::send), {to}, shown_by(group.rank(), size, k + to));
  for (int from = group.size() - 1; from >= 0; --from)
    for (int k = 0; k < count; ++k) {
      Bytes bytes(size);
      group.receive(call(Verb::receive), {from}, bytes);
      require(bytes == shown_by(from, size, k + group.rank()), "receive: message ", k, " from rank ", from);
    }
}

namespace {

// Halves in reverse order, and halves of halves, without rank 0.
void groups_of_groups_work(Transport& world) {
  const int half = world.rank() == 0 ? -1 : world.rank() % 2;
  const auto group = world.split(half, -world.rank(), Site::here());
  require((group == nullptr) == (world.rank() == 0), "split: rank 0 has no color");
  if (group) {
    for (int r = 1; r < group->size(); ++r)
      require(group->global({r}).value < group->global({r - 1}).value, "split: keys reverse the order");
    require(group->global({group->rank()}).value == world.rank(), "split: global rank of ", group->rank());
    all_see_all(*group, 1000, 10);
    all_sum(*group, 70'000, true);
    const auto part = group->split(group->rank() / 2, 0, Site::here());
    require(part->global({part->rank()}).value == world.rank(), "nested split: global rank of ", part->rank());
    all_see_all(*part, 100'000, 3);
    messages_arrive_in_order(*part, 2, 100);
  }
  all_see_all(world, 10);
}

}  // namespace

void barrier(Transport& group) {
  group.expose(call(Verb::barrier), {}, 0, [](const Transport::Part&) {});
}

void groups_come_and_go(Transport& world, int count) {
  std::vector<std::unique_ptr<Transport>> held;
  for (int i = 0; i < count; ++i) {
    const int color = i % 3 == 0 && world.rank() == i % world.size() ? -1 : world.rank() % (1 + i % 2);
    std::unique_ptr<Transport> group = world.split(color, -world.rank(), Site::here());
    if (!group) continue;
    all_see_all(*group, 100 + 977 * static_cast<size_t>(i % 7), 10, i);
    if (i % 10 == 0) all_sum(*group, 30'000, false);
    if (i % 5 == 0) messages_arrive_in_order(*group, 1, 100);
    if (i % 4 == 0) group->start(call(Verb::all_gather), Tensor::full({64}, i), 256);
    held.push_back(std::move(group));
    if (held.size() > static_cast<size_t>(world.rank() % 3)) held.erase(held.begin());
  }
  held.clear();
  barrier(world);
}

size_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  size_t kibibytes = 0;
  for (std::string name; status >> name;)
    if (size_t part = 0; (name == "RssAnon:" || name == "RssShmem:") && status >> part) kibibytes += part;
  return kibibytes << 10;
}

bool sanitized() { return dlsym(RTLD_DEFAULT, "__sanitizer_print_stack_trace") != nullptr; }
size_t kept_by_allocator() { return (sanitized() ? size_t{16} : size_t{2}) << 20; }

size_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

void everything_works(Transport& group) {
  for (size_t size : {0, 1, 4, 48, 49, 1000, 16'384, 16'385, 100'000, 262'144, 300'001, 2'100'000}) {
    all_see_all(group, size);
    all_see_all(group, size, size / 3 + 1);
  }
  for (size_t count : {0, 1, 12, 13, 4'096, 4'097, 65'536, 65'537, 100'001, 1'000'003})
    for (bool in_place : {false, true}) {
      all_sum(group, count, in_place);
      all_sum_shown(group, count, in_place);
      all_sum_shown(group, count, in_place, 1);
    }
  for (size_t size : {0, 1, 48}) started_collectives_work(group, size, 200);
  started_collectives_work(group, 10'000, 10);
  common_memory_works(group);
  common_results_are_complete(group);
  common_memory_is_used_again(group);
  messages_arrive_in_order(group, 3, 0);
  messages_arrive_in_order(group, 5, 1000);
  messages_arrive_in_order(group, 2, 1'000'000);
  groups_of_groups_work(group);
}

}  // namespace weft::checks
