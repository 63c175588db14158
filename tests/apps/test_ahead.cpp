// SPDX-License-Identifier: Apache-2.0
// Data that are prepared ahead of their step.
#include <atomic>
#include <thread>

#include "apps/shared/run/ahead.h"
#include "tests/support/on_each_device.h"
#include "weft/collectives/transports/self.h"

using namespace weft;

TEST_CASE("values are prepared in order, one ahead at most, by another thread if a core is free") {
  for (const bool spare_core : {false, true}) {
    std::atomic<int> made = 0;
    std::thread::id maker;
    Ahead<int> ahead([&] { return maker = std::this_thread::get_id(), ++made; }, spare_core);
    for (int i = 1; i <= 5; ++i) {
      CHECK(ahead.next() == i);
      CHECK(made <= i + (spare_core ? 1 : 0));
    }
    while (spare_core && made < 6) std::this_thread::yield();  // it comes without being asked for
    CHECK(made == (spare_core ? 6 : 5));
  }
}

TEST_CASE_METHOD(OnEachDevice, "the next data are prepared while a step runs, which reads its own unchanged") {
  constexpr size_t steps = 8;
  Backend& on = backend(device);
  std::vector<Tensor> read;
  for (size_t i = 0; i < steps; ++i) read.push_back(empty({1000}));
  std::atomic<size_t> made = 0;
  const auto make = [&] {
    const Tensor value = Tensor::full({1000}, static_cast<double>(made + 1), DType::f64).to(device);
    ++made;
    return value;
  };
  Ahead<Tensor> ahead(make, true, device);
  int64_t blocks = 0;  // of memory
  for (size_t i = 0; i < steps; ++i) {
    const Tensor data = ahead.next();
    on.accumulate(1, data, read[i]);
    while (made < i + 2) std::this_thread::yield();  // while the step runs
    if (i == 1) blocks = on.memory().system_calls;
  }
  for (size_t i = 0; i < steps; ++i) CHECK(read[i].values() == Values(1000, static_cast<double>(i + 1)));
  if (device == Device::cuda) CHECK(on.memory().system_calls == blocks);  // those of two steps
}

TEST_CASE("values are prepared when they are asked for if the system has no thread left") {
  pthread_attr_t usual, too_large;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&too_large);
  pthread_attr_setstacksize(&too_large, size_t{1} << 50);
  pthread_setattr_default_np(&too_large);
  Ahead<std::thread::id> ahead(std::this_thread::get_id, true);
  pthread_setattr_default_np(&usual);
  CHECK(ahead.next() == std::this_thread::get_id());
}

TEST_CASE("an error while data are prepared is thrown where they are taken") {
  for (const bool spare_core : {false, true}) {
    int made = 0;
    Ahead<int> ahead([&] { return ++made < 3 ? made : throw Error("the third"); }, spare_core);
    CHECK((ahead.next() == 1 && ahead.next() == 2));
    CHECK_THROWS_WITH(ahead.next(), "the third");
    CHECK_THROWS_WITH(ahead.next(), "the third");
  }
}

TEST_CASE("steps find the data of their own micro-batches, from the step on where a run continues") {
  Communicator comm(connect_self());
  Parameter weight("weight", Tensor::zeros({1}));
  for (const int64_t threads : {0, 1, 3}) {
    const Training training({{{&weight}, Sgd{}}}, comm, {.accumulate = 4});
    Batches batches(10, 3, 7);  // the last of an epoch has one sample, so three of its micro-batches are empty
    for (int i = 0; i < 2; ++i) batches.next();
    const auto make = [](std::span<const int64_t> samples, int64_t step) {
      Values rows;
      for (const int64_t sample : samples) rows.insert(rows.end(), {double(sample), double(step)});
      return Tensor::from({std::ssize(samples), 2}, rows, DType::i64);
    };
    auto ahead = data_ahead(batches, training, 2, make, {threads});
    for (int64_t step = 2; step < 12; ++step) {
      const LocalBatch batch = training.local_batch(batches.next());
      const auto data = ahead.next();
      for (const MicroBatch& micro : batch.micro_batches)
        CHECK(data.of(micro.samples).values() == make(micro.samples, step).values());
    }
  }
}
