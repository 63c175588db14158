// The card's memory: its pool, its copies, and its end.
#include <thread>

#include "tests/cuda_checks.h"

using namespace weft;

TEST_CASE("values survive the way to the card and back, also when they outrun the staging memory") {
  SKIP_WITHOUT_A_CARD();
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{1} << 19, (int64_t{5} << 20) + 3}) {
    const Tensor x = Tensor::uniform({size}, Random{3});
    CHECK(x.to(Device::cuda).clone().to(Device::cpu).values() == x.values());
  }
}

TEST_CASE("a step that is repeated takes nothing more from the card's system") {
  SKIP_WITHOUT_A_CARD();
  Backend& card = backend(Device::cuda);
  const Tensor x = Tensor::uniform({60, 1000}, Random{1}), w = Tensor::uniform({1000, 30}, Random{2});
  const auto step = [&] {
    const Tensor there = x.to(Device::cuda);
    Tensor y({60, 30}, DType::f32, Device::cuda), sum({1}, DType::f32, Device::cuda);
    card.matmul(there, false, w.to(Device::cuda), false, {}, y);
    card.reduce(Reduction::sum, there, Along(1, 60000, 1), sum);
    return sum.item();
  };
  step();
  const MemoryStatistics before = card.memory();
  for (int i = 0; i < 3; ++i) step();
  CHECK(card.memory().system_calls == before.system_calls);
  CHECK(card.memory().live_bytes == before.live_bytes);
  CHECK(card.memory().peak_bytes == before.peak_bytes);
}

TEST_CASE("a block freed by another thread comes home, and a new thread inherits what an ended one left") {
  SKIP_WITHOUT_A_CARD();
  Backend& card = backend(Device::cuda);
  const int64_t live = card.memory().live_bytes;
  int64_t calls = 0;
  for (int round = 0; round < 3; ++round) {
    Tensor mine = Tensor::full({12345677}, 1, DType::u8, Device::cuda);
    card.synchronize();
    std::vector<double> seen;
    std::thread([&seen, given = std::move(mine)]() mutable {
      const Tensor copy = given.clone();  // on this thread's stream
      given = {};
      seen = copy.slice(0, 5).values();
    }).join();
    CHECK(seen == std::vector<double>(5, 1));
    CHECK(card.memory().live_bytes == live);
    if (round > 0) CHECK(card.memory().system_calls == calls);
    calls = card.memory().system_calls;
  }
}

TEST_CASE("a request beyond the card's memory is an error that names the sizes and leaves the card usable") {
  SKIP_WITHOUT_A_CARD();
  const auto ask = [](int64_t bytes) { return Tensor({bytes}, DType::u8, Device::cuda); };
  CHECK_THROWS_WITH(ask(int64_t{1} << 45), Catch::Contains("no memory for 35184372088832 bytes"));
  CHECK_THROWS_WITH(ask(int64_t{1} << 55), Catch::Contains("memory for 36028797018963968 bytes"));
  CHECK(Tensor::full({3}, 2, DType::f32, Device::cuda).values() == std::vector<double>(3, 2));
}
