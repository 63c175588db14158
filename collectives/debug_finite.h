#pragma once
// Where a gradient that is not finite comes from. While a DebugFinite exists, the first result on its tape that is not
// finite is remembered; when such a gradient reaches a parameter, the job ends and names it. Infinities that do no
// harm, such as those of a mask, are none of its business. WEFT_DEBUG=1 makes one (debug.h).
#include "collectives/communicator.h"
#include "engine/observer.h"

namespace weft {

class DebugFinite final : public Tape::Observer {
 public:
  DebugFinite(Tape& tape, const Communicator& comm);  // before anything is recorded
  ~DebugFinite() override { tape_.forget(*this); }
  DebugFinite(const DebugFinite&) = delete;
  DebugFinite& operator=(const DebugFinite&) = delete;

 private:
  void watched(const Var& leaf, const Parameter& parameter) override;
  void computed(const Var& result, const Op& op, std::span<const Var* const> inputs) override;
  void respread(const Var&) override {}
  void walk_begins(bool) override {}
  void arrived(const Var& gradient, const std::string& of, int64_t node, Spreads) override;
  void walk_ends(bool) override {}
  void meeting(const void*, const std::string&) override {}

  void look_at(const Tensor& value, const std::string& what);

  Tape& tape_;
  const GlobalRank rank_;
  std::string first_;
};

}  // namespace weft
