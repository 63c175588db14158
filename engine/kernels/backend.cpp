// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/backend.h"

#include <utility>

namespace weft {
namespace {

struct Devices {
  std::unique_ptr<Backend> cpu = make_cpu_backend(), cuda;
  std::string obstacle;  // that keeps a card from being used

  Devices() {
    try {
      cuda = make_cuda_backend();
    } catch (const Error& error) {  // for programs that want a card; others go on
      obstacle = error.what();
    }
  }
};
// Made once and never destroyed, because static tensors return their memory to the pools at the end of the process.
const Devices& devices() {
  static const Devices& all = *new Devices;
  return all;
}

}  // namespace

Backend& backend(Device device) {
  if (device == Device::cpu) return *devices().cpu;
  const auto& chosen = devices().cuda;
  require(devices().obstacle.empty(), devices().obstacle);
  require(chosen != nullptr, "device ", device, ": not in this build, or no such device answers on this machine");
  return *chosen;
}

TensorDevice& tensor_device(Device device) { return backend(device); }

bool available(Device device) {
  if (device == Device::cpu) return true;
  require(devices().obstacle.empty(), devices().obstacle);
  return devices().cuda != nullptr;
}

Tensor staging_for(const Tensor& x) {
  return Tensor(StorageHandle(backend(x.device()).allocate_staging(x.bytes())), 0, x.shape(), x.dtype());
}

Tensor staged(const Tensor& x) {
  if (x.device() == Device::cpu) return x;
  Tensor host = staging_for(x);
  host.copy_from(x);
  return host;
}

HostCopy::HostCopy(const Tensor& x) : host_(staging_for(x)) {
  arrive_ = backend(x.device()).start_download(host_.mutate(), x.data(), x.bytes());
}

// The memory must not be reused before the copy has ended.
HostCopy::~HostCopy() {
  try {
    values();
  } catch (const Error&) {  // nobody has asked for the values
  }
}

const Tensor& HostCopy::values() {
  if (arrive_) std::exchange(arrive_, {})();
  return host_;
}

}  // namespace weft
