// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors with names, as in checkpoints.
#include <functional>
#include <map>
#include <string>

#include "weft/engine/tensor/tensor.h"

namespace weft {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// The name, type and shape of a tensor that is not in memory. A list of these goes with a source or a sink, which reads
// or writes the tensors one by one, by their index in the list.
struct TensorOutline {
  std::string name;
  DType dtype;
  Shape shape;
};
using TensorSource = std::function<Tensor(size_t tensor)>;
using TensorSink = std::function<void(size_t tensor, const Tensor& whole)>;

// Texts about a file, by key.
using Metadata = std::map<std::string, std::string>;

}  // namespace weft
