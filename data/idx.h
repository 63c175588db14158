#pragma once
// IDX files, the format of MNIST and its successors: a magic number, the extents, then the values, usually gzipped.
#include <filesystem>

#include "engine/error.h"
#include "engine/tensor.h"

namespace weft {

struct MissingInput : Error {
  using Error::Error;
};  // a file or folder that is not there
struct MalformedInput : Error {
  using Error::Error;
};  // one that is not what it should be

// The bytes of an IDX file as a u8 tensor. `hint` says in the error what to do about a missing file. A gzip file can
// unpack to a thousand times its size, so one whose header promises more than `most_bytes` is refused before memory is
// taken for it, and never is more unpacked than the header promises.
Tensor read_idx(const std::filesystem::path& file, const std::string& hint = "", int64_t most_bytes = int64_t{1} << 28);

}  // namespace weft
