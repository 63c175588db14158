// SPDX-License-Identifier: Apache-2.0
#pragma once
// When a rank was in which op of a tape, as slices of its timeline. A forward op is said to begin when the op before it
// ended, since a tape does not tell. A backward one ends where that of the next node begins.
#include "weft/collectives/checks/timeline.h"
#include "weft/engine/tape/observer.h"

namespace weft {

class OpTimes final : public Tape::Observer {
 public:
  OpTimes(Tape& tape, Timeline& timeline);
  ~OpTimes() override { tape_.forget(*this); }
  OpTimes(const OpTimes&) = delete;
  OpTimes& operator=(const OpTimes&) = delete;

 private:
  void watched(const Var&, const Parameter*) override {}
  void computed(const Var&, const Op& op, std::span<const Var* const>) override {
    add(Timeline::Kind::forward, op.name);
  }
  void placement_changed(const Var&) override {}
  void walk_begins(bool) override { begin_ = seconds_now(); }
  void arrived(const Var& gradient, const std::string& of, int64_t node, Placements placements) override;
  void walk_ends(bool) override;
  void collective_begins(const void*, const std::string&) override {}
  void add(Timeline::Kind kind, const std::string& name);  // from the end of the last slice until now

  Tape& tape_;
  Timeline& timeline_;
  double begin_ = seconds_now();
  std::string in_backward_;  // the node whose pullbacks are running
};

}  // namespace weft
