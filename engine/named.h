#pragma once
// Tensors with the names that people and files know them by.
#include <functional>
#include <map>
#include <string>

#include "engine/tensor.h"

namespace weft {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// The same of a tensor that is not at hand. Lists of these go with a source or a sink of the tensors themselves, which
// are asked for, or handed over, one by one and by their place in the list.
struct TensorOutline {
  std::string name;
  DType dtype;
  Shape shape;
};
using TensorSource = std::function<Tensor(size_t tensor)>;
using TensorSink = std::function<void(size_t tensor, const Tensor& whole)>;

// What is said about them in words.
using Metadata = std::map<std::string, std::string>;

}  // namespace weft
