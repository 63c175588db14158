// SPDX-License-Identifier: Apache-2.0
#pragma once
// IDX files under any name, gzipped or not. A file of three axes has grey images, one of four axes has images of
// several channels, and one of a single axis has labels.
#include <optional>

#include "weft/data/pictures.h"

namespace weft {

// A folder with a file of images, and one of labels if there are any, for each part: the names of those of the test
// part have "t10k", "test" or "val" in them. Or a file of images, whose labels are in the file with "labels" for
// "images" and "idx1" for "idx3" in its name, if that is there. Nothing if the path is neither.
std::optional<Pictures> load_idx(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace weft
