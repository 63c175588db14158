#pragma once
// What the system has no memory for. Its own kind of Error, since it ends a job by an exit code of its own.
#include "engine/error.h"

namespace weft {

struct OutOfMemory : Error {
  using Error::Error;
};

}  // namespace weft
