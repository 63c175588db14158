// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <thread>

#include "tests/support/catch.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/tensor/pool.h"

using namespace weft;
using Catch::Contains;
using Values = std::vector<double>;

TEST_CASE("a tensor holds the values that it was made from, in every type and on every device") {
  for (const Device device : {Device::cpu, Device::cuda}) {
    if (!available(device)) continue;
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8}) {
      const Tensor t = Tensor::from({2, 2}, {0, 1, 2, 200}, dtype, device);
      CHECK(t.values() == Values{0, 1, 2, 200});
      CHECK(t.bytes() == 4 * size_of(dtype));
      CHECK(t.clone().values() == t.values());
      CHECK(t.to(Device::cpu).to(device).values() == t.values());
      CHECK(Tensor::full({3}, 7, dtype, device).values() == Values{7, 7, 7});
      CHECK(Tensor::arange(3, dtype, device).values() == Values{0, 1, 2});
    }
  }
}

TEST_CASE("reshape and slice are views, and clone is a copy") {
  Tensor t = Tensor::from({3, 2}, {0, 1, 2, 3, 4, 5});
  const Tensor rows = t.slice(1, 3), flat = t.reshape({6}), copy = t.clone();
  t.mutate<float>()[2] = 9;
  CHECK(rows.values() == Values{9, 3, 4, 5});
  CHECK(flat.values() == Values{0, 1, 9, 3, 4, 5});
  CHECK(copy.values() == Values{0, 1, 2, 3, 4, 5});
  CHECK(rows.slice(1, 2).values() == Values{4, 5});
  CHECK(t.slice(3, 3).size() == 0);
}

TEST_CASE("conversion between types rounds to nearest even, and truncates to integers") {
  const Tensor t = Tensor::from({4}, {1.00390625, 1.01171875, -2.7, 3.9}, DType::f64);
  CHECK(t.to(DType::bf16).values() == Values{1, 1.015625, -2.703125, 3.90625});
  CHECK(t.to(DType::i64).values() == Values{1, 1, -2, 3});
  CHECK(std::isnan(Tensor::full({}, NAN).to(DType::bf16).item()));
  CHECK(Tensor::full({}, INFINITY).to(DType::bf16).item() == INFINITY);
}

TEST_CASE("a tensor prints its type, shape, device and values, with long axes shortened") {
  CHECK(text(Tensor::from({2, 2}, {1, 2.5, -3, 4})) == "f32 (2, 2) on cpu [[1, 2.5], [-3, 4]]");
  CHECK(text(Tensor::arange(9)) == "i64 (9) on cpu [0, 1, 2, ..., 6, 7, 8]");
  CHECK(text(Tensor::full({}, 3)) == "f32 () on cpu 3");
  CHECK(text(Tensor::zeros({0, 2})) == "f32 (0, 2) on cpu []");
  CHECK(text(Tensor()) == "undefined tensor");
}

TEST_CASE("bad tensor operations are refused with an error that names the shapes") {
  const Tensor t = Tensor::zeros({3, 2});
  CHECK_THROWS_WITH(t.reshape({4}), "reshape: (3, 2) holds 6 elements, (4) needs 4");
  CHECK_THROWS_WITH(t.slice(2, 4), "slice: rows 2 to 4 of (3, 2)");
  CHECK_THROWS_WITH(Tensor::full({}, 1).slice(0, 0), "slice: a scalar has no axis 0");
  CHECK_THROWS_WITH(t.item(), "item: one element is needed, not (3, 2)");
  CHECK_THROWS_WITH(Tensor::from({2}, {1}), "tensor: 1 values for shape (2)");
  CHECK_THROWS_WITH(Tensor::zeros({2}).copy_from(t), "copy: f32 (3, 2) into f32 (2)");
  CHECK_THROWS_WITH(t.shape()[2], "shape: axis 2 of (3, 2), which has 2 axes");
  CHECK_THROWS_WITH(Shape({2, -1}), "shape: extent -1 of axis 1 is negative");
  CHECK_THROWS_WITH(Shape({1, 1, 1, 1, 1, 1, 1}), "shape: 7 axes, but at most 6 are supported");
  CHECK_THROWS_WITH(Shape({1}).with_inserted(3, 1), "shape: no place for a new axis 3 in (1)");
  CHECK_THROWS_WITH(Tensor::uniform({2}, {}, 0, 1, DType::i64), "uniform: a floating type is needed, not i64");
  CHECK_THROWS_WITH(Tensor::normal({2}, {}, 0, 1, DType::u8), "normal: a floating type is needed, not u8");
  if (!available(Device::cuda))
    CHECK_THROWS_WITH(t.to(Device::cuda), "device cuda: not in this build, or no such device answers on this machine");
}

TEST_CASE("random draws depend only on seed, stream and index") {
  const Random random{42, 7};
  const Values whole = Tensor::uniform({1001}, random).values();
  CHECK(Tensor::uniform({500}, random.at(501)).values() == Values(whole.begin() + 501, whole.end()));
  CHECK(Tensor::uniform({1001}, {42, 8}).values() != whole);
  CHECK(Tensor::uniform({1001}, {43, 7}).values() != whole);
  const Values normal = Tensor::normal({1001}, random, 0, 1, DType::f64).values();
  CHECK(Tensor::normal({500}, random.at(501), 0, 1, DType::f64).values() == Values(normal.begin() + 501, normal.end()));
  CHECK(random.fork(1).stream != random.fork(2).stream);
  CHECK(std::set<double>(whole.begin(), whole.end()).size() > 990);
}

TEST_CASE("uniform and normal draws have the right moments") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Values u = Tensor::uniform({200000}, {1}, -1, 3, dtype).values(),
                 n = Tensor::normal({200000}, {2}, 1, 2, dtype).values();
    const auto moments = [](const Values& v) {
      double mean = 0, square = 0;
      for (const double x : v) mean += x, square += x * x;
      mean /= static_cast<double>(v.size());
      return std::pair(mean, square / static_cast<double>(v.size()) - mean * mean);
    };
    CHECK(moments(u).first == Approx(1).margin(0.02));
    CHECK(moments(u).second == Approx(16.0 / 12).epsilon(0.02));
    CHECK(moments(n).first == Approx(1).margin(0.02));
    CHECK(moments(n).second == Approx(4).epsilon(0.02));
    CHECK(*std::min_element(u.begin(), u.end()) >= -1);
    CHECK(*std::max_element(u.begin(), u.end()) <= 3);
  }
}

TEST_CASE("Philox matches the published test vectors") {
  const auto is = [](Words w, std::vector<uint32_t> expected) {
    return std::equal(expected.begin(), expected.end(), w.word);
  };
  CHECK(is(philox(0, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  CHECK(is(philox(~0ull, ~0ull, ~0ull), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  CHECK(is(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
           {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST_CASE("size classes hold the requested bytes and waste at most an eighth") {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{1000}, size_t{4096},
                       size_t{4097}, size_t{1} << 20, (size_t{1} << 20) + 1, size_t{3} << 30}) {
    const size_t given = SizeClass::bytes(SizeClass::of(bytes));
    CHECK(given >= bytes);
    CHECK(given <= std::max<size_t>(64, bytes + bytes / 8 + 8));
    CHECK(SizeClass::of(given) == SizeClass::of(bytes));
  }
}

// What the kernel says of the mapping that holds an address: "hg" among its flags if large pages were asked for.
std::string flags_of_mapping(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) inside = begin <= wanted && wanted < end;
    if (inside && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

TEST_CASE("blocks of 2 MiB and more begin at a large page and ask for such") {
  constexpr size_t page = size_t{2} << 20;
  for (const size_t bytes : {size_t{1}, page - 1, page, 3 * page + 5}) {
    INFO(bytes << " bytes");
    const std::unique_ptr<void, void (*)(void*)> block(pool::from_system(bytes), std::free);
    std::memset(block.get(), 1, bytes);
    CHECK(reinterpret_cast<uintptr_t>(block.get()) % (bytes < page ? 64 : page) == 0);
    const std::string flags = flags_of_mapping(block.get());
    if (bytes >= page && std::filesystem::exists("/sys/kernel/mm/transparent_hugepage") && !flags.empty())
      CHECK_THAT(flags, Contains(" hg"));
  }
}

TEST_CASE("the pool reuses blocks, aligns them and counts them") {
  const auto step = [] {
    for (int i = 0; i < 3; ++i) {
      const Tensor a({1000}), b({1000, 3}, DType::f64);
      CHECK(reinterpret_cast<uintptr_t>(a.data()) % 64 == 0);
      CHECK(reinterpret_cast<uintptr_t>(b.data()) % 64 == 0);
    }
  };
  step();
  const MemoryStatistics before = backend(Device::cpu).memory();
  step();
  const MemoryStatistics after = backend(Device::cpu).memory();
  CHECK(after.system_calls == before.system_calls);
  CHECK(after.live_bytes == before.live_bytes);
  const Tensor held({1 << 20});
  CHECK(backend(Device::cpu).memory().live_bytes >= before.live_bytes + (4 << 20));
  CHECK(backend(Device::cpu).memory().peak_bytes >= before.live_bytes + (4 << 20));
}

TEST_CASE("tensors created on one thread and destroyed on another do not grow memory") {
  int64_t calls = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<Tensor> made;
    std::jthread([&] {
      for (int i = 0; i < 100; ++i) made.push_back(Tensor::full({4096}, i));
    }).join();
    CHECK(made[42].values()[4095] == 42);
    made.clear();
    if (round == 9) calls = backend(Device::cpu).memory().system_calls;
  }
  CHECK(backend(Device::cpu).memory().system_calls <= calls + 150);
}
