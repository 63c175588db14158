#pragma once
// A rank that does something long while the others wait for it says so, by name:
//
//   const Busy busy(comm, "writes " + path);
//
// Then their deadlines rest for as long as this lives, its process does, and it is not stopped; but not for longer than
// ten deadlines, after which the report tells what it was busy with (docs/faults.md).
#include "collectives/communicator.h"

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
