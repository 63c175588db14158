// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors by name, from a file of any format that Weft reads (.safetensors, .npy, .npz), or from a folder of these.
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "weft/engine/tensor/tensor.h"

namespace weft::verify {

// "layer.2" before "layer.10": runs of digits count as numbers.
struct NaturalOrder {
  bool operator()(const std::string& a, const std::string& b) const;
};

struct FileTensor {
  std::function<Tensor()> read;  // when it is called
  bool half = false;             // f16 in the file, where `read` gives f32
};
using Tensors = std::map<std::string, FileTensor, NaturalOrder>;

// In a folder, names begin with that of the file.
Tensors tensors_of(const std::filesystem::path& path);

}  // namespace weft::verify
