// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank makes and must not outlive it. In C++ a communicator is destroyed where its rank ends. In Python anyone
// may keep one, or a tape whose collectives need one, so at the end of a rank they become empty objects, whose use is
// an error.
#include <nanobind/nanobind.h>

#include <vector>

namespace weft::python {

class RankScope {
 public:
  RankScope() { current() = this; }
  ~RankScope();
  RankScope(const RankScope&) = delete;
  RankScope& operator=(const RankScope&) = delete;

  static RankScope*& current();  // of this thread; null outside of ranks
  nanobind::object keep(nanobind::object communicator);
  void add(nanobind::handle tape);

 private:
  std::vector<nanobind::object> communicators_;
  std::vector<nanobind::weakref> tapes_;
};

}  // namespace weft::python
