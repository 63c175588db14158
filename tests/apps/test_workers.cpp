// SPDX-License-Identifier: Apache-2.0
// Threads that make the data of a batch together.
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "apps/shared/run/ahead.h"
#include "apps/shared/run/views.h"
#include "tests/support/catch.h"
#include "weft/collectives/transports/self.h"

namespace weft {
namespace {

LabelledImages pictures(int64_t count, int64_t channels) {
  LabelledImages data{Tensor({count, 9, 7, channels}, DType::u8), Tensor({count}, DType::i64)};
  for (int64_t i = 0; i < data.images.size(); ++i) data.images.mutate<uint8_t>()[i] = uint8_t(i * 2654435761u >> 13);
  for (int64_t i = 0; i < count; ++i) data.labels.mutate<int64_t>()[i] = 3 * i;
  return data;
}

bool equal_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

TEST_CASE("views have the same bytes on any number of threads, also of uneven, single and no samples") {
  const LabelledImages data = pictures(100, 3);
  const Augmentation colours{.blur = 0.5, .saturation = 0.4, .hue = 0.1, .grayscale = 0.2};
  for (const int64_t threads : {1, 2, 3, 5, 8}) {
    Workers workers(threads);
    for (const int64_t count : {0, 1, 2, 7, 64, 97})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const auto samples = samples_between(3, 3 + count);
        const auto make = [&](auto some) { return views_of(data, some, Random{5}.fork(2), colours, dtype); };
        Views whole = make(std::span<const int64_t>(samples)), rows = workers.make_rows(samples, make);
        for (size_t i = 0; i < whole.tensors().size(); ++i) CHECK(equal_bytes(*rows.tensors()[i], *whole.tensors()[i]));
      }
  }
}

TEST_CASE("each of several threads makes some of a batch, and one alone the whole") {
  const auto samples = samples_between(0, 12);
  for (const int64_t threads : {0, 1, 2, 3}) {
    Workers workers(threads);
    std::atomic<int64_t> calls = 0;
    const auto make = [&](std::span<const int64_t> some) {
      if (!some.empty()) ++calls;
      while (!some.empty() && calls < threads) std::this_thread::yield();  // ends if as many threads are here
      return Tensor::zeros({std::ssize(some)});
    };
    workers.make_rows(samples, make);
    CHECK(calls == (threads > 1 ? 2 * threads : 1));
  }
}

TEST_CASE("an error of one thread is thrown when all have ended, and the next batch is made") {
  Workers workers(3);
  const auto samples = samples_between(0, 60);
  std::atomic<int> busy = 0;
  for (const int64_t wrong : {0, 31, 59, 60}) {
    const auto make = [&](std::span<const int64_t> some) {
      struct Busy {
        explicit Busy(std::atomic<int>& threads) : threads(threads) { ++threads; }
        ~Busy() { --threads; }
        std::atomic<int>& threads;
      } const during(busy);
      return take(pictures(wrong, 1), some).labels;
    };
    if (wrong < 60)
      CHECK_THROWS_WITH(workers.make_rows(samples, make), Catch::Contains(" of " + std::to_string(wrong)));
    else
      CHECK(workers.make_rows(samples, make).values()[59] == 3 * 59);
    CHECK(busy == 0);
  }
}

TEST_CASE("data that several threads make are dropped at any time") {
  Communicator comm(connect_self());
  Parameter weight("weight", Tensor::zeros({1}));
  const Training training({{{&weight}, Sgd{}}}, comm, {});
  const LabelledImages data = pictures(100, 1);
  for (int taken = 0; taken < 20; ++taken) {
    const auto make = [&](auto samples, int64_t step) {
      return views_of(data, samples, Random{1}.fork(uint64_t(step)), {}, DType::f32);
    };
    auto ahead = data_ahead(Batches(100, 64, 7), training, 0, make, {3});
    for (int i = 0; i < taken % 3; ++i) ahead.next();
  }
}

TEST_CASE("the threads that the system has make a batch") {
  pthread_attr_t usual, too_large;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&too_large);
  pthread_attr_setstacksize(&too_large, size_t{1} << 50);
  pthread_setattr_default_np(&too_large);
  Workers workers(4);
  pthread_setattr_default_np(&usual);
  const auto label_of = [](std::span<const int64_t> some) {
    CHECK(some.size() == 5);
    return Tensor::full({std::ssize(some)}, 2);
  };
  CHECK(workers.make_rows(samples_between(0, 5), label_of).values() == std::vector<double>(5, 2.0));
}

TEST_CASE("each rank has its part of the cores that are left to prepare data, up to eight") {
  CHECK(threads_beside_steps(1, 1) == 0);
  CHECK(threads_beside_steps(2, 1) == 1);
  CHECK(threads_beside_steps(2, 2) == 0);
  CHECK(threads_beside_steps(3, 2) == 0);
  CHECK(threads_beside_steps(4, 8) == 0);
  CHECK(threads_beside_steps(8, 2) == 3);
  CHECK(threads_beside_steps(64, 1) == 8);
}

}  // namespace
}  // namespace weft
