// SPDX-License-Identifier: Apache-2.0
// Host staging memory for transfers to and from each available device.
#include "tests/support/on_each_device.h"

using namespace weft;

TEST_CASE_METHOD(
    OnEachDevice,
    "staging_for returns a host tensor with equal values, which is the tensor itself if it is on the host") {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{7, 11}, Shape{3, 400'001}}) {
    const Tensor x = random(shape), host = staged(x);
    const Values seen = host.values();  // before anything else synchronises the device
    CHECK(host.device() == Device::cpu);
    CHECK(host.shape() == shape);
    CHECK(seen == x.values());
    CHECK(host.shares_memory_with(x) == (device == Device::cpu));
  }
}

TEST_CASE_METHOD(OnEachDevice,
                 "values copied to staging memory arrive intact, even if the staging tensor is dropped at once") {
  for (const int64_t size : {1, 1000, 1'000'003}) {
    Tensor y = full({size}, -1);
    for (int round = 0; round < 3; ++round) {
      const Tensor values = Tensor::uniform({size}, {9, static_cast<uint64_t>(round)}, 0, 1, DType::f64);
      {
        Tensor landing = staging_for(y);
        CHECK_FALSE(landing.shares_memory_with(y));
        landing.copy_from(values);
        y.copy_from(landing);
      }
      staging_for(y).mutate<double>()[0] = 5;  // reuses the same block
      CHECK(y.values() == values.values());
    }
  }
}

TEST_CASE_METHOD(OnEachDevice, "a copy for the host has the values of its time, whenever they are asked for") {
  for (const int64_t size : {0, 1, 300'000}) {
    Tensor x = random({size});
    const Values before = x.values();
    HostCopy copy(x);
    backend(device).fill(7, x);
    const HostCopy never_read(x);
    CHECK(copy.values().values() == before);
    CHECK(copy.values().values() == before);
  }
}

TEST_CASE_METHOD(OnEachDevice, "staging allocates no system memory after the first use") {
  const Tensor x = random({100'000}), small = random({10});
  const auto step = [&] {
    Tensor y = Tensor::like(x);
    y.copy_from(staged(x));
    Tensor landing = staging_for(small);
    landing.copy_from(staged(small));
  };
  step();
  Backend& on = backend(device);
  const MemoryStatistics before = on.staging_memory();
  for (int i = 0; i < 5; ++i) step();
  CHECK(on.staging_memory().system_calls == before.system_calls);
  CHECK(on.staging_memory().live_bytes == before.live_bytes);
  CHECK(on.staging_memory().peak_bytes == before.peak_bytes);
}
