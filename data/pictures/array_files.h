// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pictures in NumPy's .npy and .npz, and in .safetensors.
//
// The arrays of a file, or of a folder of .npy files, whose names without the ending are the names of the arrays, are
//
//   images of the training part   images, x_train, train_images, x, data, or the only array
//   labels of the training part   labels, y_train, train_labels, y
//   the test part                 test_images or x_test; test_labels or y_test
#include <optional>

#include "weft/data/pictures.h"

namespace weft {

// Nothing if the path is none of these. Errors name the arrays that there are. No array may be larger than `max_bytes`.
std::optional<Pictures> load_arrays(const std::filesystem::path& path, uint64_t max_bytes);

}  // namespace weft
