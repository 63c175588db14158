// SPDX-License-Identifier: Apache-2.0
// The card's memory: pool, copies and limits.
#include <functional>
#include <future>
#include <thread>

#include "tests/kernels/cuda_checks.h"

using namespace weft;

namespace {

Tensor bytes_on_card(int64_t bytes) { return Tensor({bytes}, DType::u8, Device::cuda); }
void run_on_a_thread(const std::function<void()>& work) { std::thread(work).join(); }

}  // namespace

TEST_CASE("values survive copies to the card and back, even beyond the staging memory") {
  SKIP_WITHOUT_A_CARD();
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{1} << 19, (int64_t{5} << 20) + 3}) {
    const Tensor x = Tensor::uniform({size}, Random{3});
    CHECK(x.to(Device::cuda).clone().to(Device::cpu).values() == x.values());
  }
}

TEST_CASE("a repeated step allocates no more memory on the card") {
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

TEST_CASE("a block freed by another thread returns to its owner, and a new thread inherits an ended one's memory") {
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

TEST_CASE("what a thread does after another's event sees that thread's work, without a wait") {
  SKIP_WITHOUT_A_CARD();
  Tensor given = bytes_on_card(1);  // so that this thread has a stream already
  std::function<void()> arrive;
  run_on_a_thread([&] {
    given = Tensor::full({12345}, 1, DType::u8, Device::cuda);
    arrive = backend(Device::cuda).record_event();
  });
  arrive();
  CHECK(given.clone().values() == std::vector<double>(12345, 1));
}

TEST_CASE("memory freed by a thread is not reused or returned before its work is done") {
  SKIP_WITHOUT_A_CARD();
  Backend& card = backend(Device::cuda);
  constexpr int64_t size = 5'000'000;
  for (const bool returned : {false, true}) {
    Tensor given = Tensor::full({size}, 1, DType::u8, Device::cuda);
    const void* const place = given.data();
    card.synchronize();
    std::promise<void> freed, used;
    std::vector<double> seen;
    std::thread other([&, given = std::move(given)]() mutable {
      Tensor copy = Tensor::like(given);
      for (int i = 0; i < 100; ++i) copy.copy_from(given);  // some work on this thread's stream
      given = {};
      freed.set_value();
      used.get_future().wait();
      seen = copy.slice(size - 5, size).values();
    });
    freed.get_future().wait();
    std::vector<Tensor> taken;
    if (returned)
      CHECK_THROWS(bytes_on_card(int64_t{1} << 45));
    else
      do taken.push_back(Tensor::full({size}, 2, DType::u8, Device::cuda));
      while (taken.back().data() != place && taken.size() < 100);
    card.synchronize();
    used.set_value();
    other.join();
    CHECK((returned || taken.back().data() == place));
    CHECK(seen == std::vector<double>(5, 1));
  }
}

TEST_CASE("a request beyond the card's memory is an error with the sizes, and the card stays usable") {
  SKIP_WITHOUT_A_CARD();
  CHECK_THROWS_WITH(bytes_on_card(int64_t{1} << 45), Catch::Contains("no memory for 35184372088832 bytes"));
  CHECK_THROWS_WITH(bytes_on_card(int64_t{1} << 55), Catch::Contains("memory for 36028797018963968 bytes"));
  CHECK(Tensor::full({3}, 2, DType::f32, Device::cuda).values() == std::vector<double>(3, 2));
}

TEST_CASE("a request beyond the card's memory first releases cached memory, including that of ended threads") {
  SKIP_WITHOUT_A_CARD();
  const auto calls = [] { return backend(Device::cuda).memory().system_calls; };
  const auto here = [](const std::function<void()>& work) { work(); };
  for (const std::function<void(const std::function<void()>&)> run : {+here, &run_on_a_thread}) {
    for (int i = 0; i < 10; ++i) run([] { bytes_on_card(54321); });  // in every context that waits for a thread
    CHECK_THROWS(bytes_on_card(int64_t{1} << 45));
    const int64_t before = calls();
    run([] { bytes_on_card(54321); });
    CHECK(calls() == before + 1);
  }
}

TEST_CASE("a thread's memory is on the card that it selected last, whatever other threads selected") {
  SKIP_WITHOUT_A_CARD();
  const auto told_on = [](const std::vector<int>& cards) {
    std::string told;
    run_on_a_thread([&] {
      try {
        for (const int card : cards) {
          backend(Device::cuda).use_card(card);
          const Tensor on_it = Tensor::full({1}, 0, DType::u8, Device::cuda);
          require(backend(Device::cuda).reaches(on_it.data()), "not on card ", card);
        }
        bytes_on_card(int64_t{1} << 45);
      } catch (const std::exception& error) {
        told = error.what();
      }
    });
    return told;
  };
  const std::string second = told_on({0, 1});
  if (second.find("there is no card 1") != std::string::npos) return;
  CHECK_THAT(second, Catch::Contains("are free on card 1"));
  CHECK_THAT(told_on({1}), Catch::Contains("are free on card 1"));
  CHECK_THAT(told_on({0}), Catch::Contains("are free on card 0"));
}
