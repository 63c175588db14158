// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds where a gradient that is not finite comes from. A DebugFinite remembers the first result on its tape that is
// not finite. When a gradient that is not finite reaches a parameter, the job ends and its report names that result.
// Infinities that reach no gradient, such as those of a mask, are accepted. WEFT_DEBUG=1 makes one (debug.h).
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/observer.h"

namespace weft {

class DebugFinite final : public Tape::Observer {
 public:
  DebugFinite(Tape& tape, const Communicator& comm);  // before anything is recorded
  ~DebugFinite() override { tape_.forget(*this); }
  DebugFinite(const DebugFinite&) = delete;
  DebugFinite& operator=(const DebugFinite&) = delete;

 private:
  void watched(const Var& leaf, const Parameter* parameter) override;
  void computed(const Var& result, const Op& op, std::span<const Var* const> inputs) override;
  void placement_changed(const Var&) override {}
  void walk_begins(bool) override {}
  void arrived(const Var& gradient, const std::string& of, int64_t node, Placements) override;
  void walk_ends(bool) override {}
  void collective_begins(const void*, const std::string&) override {}

  void check(const Tensor& value, const std::string& what);

  Tape& tape_;
  const GlobalRank rank_;
  std::string first_;
};

}  // namespace weft
