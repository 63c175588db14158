// SPDX-License-Identifier: Apache-2.0
#pragma once
// IDX files, the format of MNIST and its successors: a magic number, the extents, then the values, usually gzipped.
#include <filesystem>

#include "weft/data/files/input_file.h"  // MissingInput, MalformedInput
#include "weft/engine/tensor/tensor.h"

namespace weft {

// Reads the bytes of an IDX file as a u8 tensor. If the file is missing, the error ends with `hint`. A gzip file can
// unpack to a thousand times its size, so a file whose header promises more than `max_bytes` is refused before memory
// is allocated, and never more is unpacked than the header promises.
Tensor read_idx(const std::filesystem::path& file, const std::string& hint = "", int64_t max_bytes = int64_t{1} << 28);

// The number of axes of an IDX file of bytes, gzipped or not; 0 if the file is something else.
int idx_rank(const std::filesystem::path& file);

}  // namespace weft
