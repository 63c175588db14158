// SPDX-License-Identifier: Apache-2.0
#pragma once
// Marks a rank as busy while it does something long that the other ranks wait for:
//
//   const Busy busy(comm, "writes " + path);
//
// While this object and its process live and the process is not stopped, the deadlines of the other ranks do not
// advance. After ten deadlines they do, and the report names what the rank was busy with (docs/faults.md).
#include "weft/collectives/communicator.h"

namespace weft {

class Busy {
 public:
  Busy(Communicator& comm, const std::string& what) : comm_(comm), before_(comm.busy_with(what)) {}
  Busy(const Busy&) = delete;
  ~Busy() { comm_.busy_with(before_); }

 private:
  Communicator& comm_;
  const std::string before_;
};

}  // namespace weft
