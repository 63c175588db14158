// SPDX-License-Identifier: Apache-2.0
#pragma once
// The binary files of CIFAR-10 and CIFAR-100: records of one label, or of a coarse and a fine one, and 32 x 32 pixels,
// first all red values, then all green ones, then all blue ones.
#include <optional>

#include "weft/data/pictures.h"

namespace weft {

// A folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin, or with train.bin and test.bin; or one such
// file, whose pictures are all in `train`. Names of classes come from batches.meta.txt or fine_label_names.txt beside
// them, if they are there. Nothing if the path is none of these.
std::optional<Pictures> load_cifar(const std::filesystem::path& path);

}  // namespace weft
