// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pictures and labels from arrays of any of the layouts and types in which they are kept.
#include "weft/data/pictures.h"

namespace weft {

// `whose` names the array in errors, which are MalformedInput.
//
//   images: (n, h, w), (n, h, w, c) or (n, c, h, w), where c is 1, 3, or 4 with an alpha channel that is dropped;
//           u8, integers from 0 to 255, or floating from 0 to 1. Returns u8 (n, h, w, c).
Tensor images_of(const Tensor& array, const std::string& whose);
//   labels: integers, (n) or (n, 1), from 0. Returns i64 (n).
Tensor labels_of(const Tensor& array, int64_t images, const std::string& whose);

// -1 for each image.
Tensor no_labels(int64_t images);
// Names of as many classes as the labels of both parts need.
std::vector<std::string> classes_of(const LabelledImages& train, const LabelledImages& test);

}  // namespace weft
