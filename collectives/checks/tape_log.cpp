// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/tape_log.h"

#include "weft/collectives/checks/agreement.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

constexpr int64_t sampled_runs = 64, run_length = 16;  // a run of f32 is as long as a cache line

// Evenly spaced runs of elements.
Tensor sample(const Tensor& x) {
  Tensor runs({sampled_runs, run_length}, x.dtype(), x.device());
  const Along spaced(sampled_runs, x.size() / sampled_runs, 1), together(sampled_runs, run_length, 1);
  backend(x.device()).copy_slab(x, spaced, 0, runs, together, 0, run_length);
  return runs;
}

TapeLog::Excerpt excerpt(const Tensor& x, bool should_be_equal) {
  const bool all = should_be_equal || x.size() <= sampled_runs * run_length;
  const int64_t kept = x.size() <= TapeLog::most_values ? x.size() : TapeLog::first_values;
  return {x.shape(), x.dtype(), x.reshape({x.size()}).slice(0, kept).clone(),
          static_cast<uint16_t>(checksum(all ? x : sample(x)))};
}

bool values_are_equal(Placements placements) {
  return placements.anywhere(Placement::replicated) || placements.anywhere(Placement::invariant) ||
         placements.anywhere(Placement::constant);
}
bool cotangents_are_equal(Placements placements) {
  return placements.anywhere(Placement::invariant) || placements.anywhere(Placement::partial);
}

std::string list_of(const std::vector<std::string>& inputs) {
  std::string list;
  for (const std::string& input : inputs) list += (list.empty() ? "(" : ", ") + input;
  return list.empty() ? "" : list + ")";
}

}  // namespace

TapeLog::TapeLog(Tape& tape) : tape_(tape) { tape.observe(*this); }

const TapeLog* TapeLog::find(const Tape& tape) {
  for (const Tape::Observer* observer : tape.observers())
    if (const auto* log = dynamic_cast<const TapeLog*>(observer)) return log;
  return nullptr;
}

TapeLog::Notes TapeLog::notes(const Tape& tape) {
  const TapeLog* log = find(tape);
  Notes notes = log ? *log->notes_ : Notes();
  add_nodes(tape, notes);
  return notes;
}

std::shared_ptr<const TapeLog::Notes> TapeLog::keep(Tape& tape) {
  if (find(tape)) return nullptr;
  auto log = std::make_unique<TapeLog>(tape);
  const std::shared_ptr<const Notes> notes = log->notes_;
  tape.own(std::move(log));
  return notes;
}

// Those that are not there yet: nodes from before the log, or of checkpoints, which observers do not see.
void TapeLog::add_nodes(const Tape& tape, Notes& notes) {
  notes.groups = tape.groups();
  for (size_t i = notes.nodes.size(); i < tape.nodes_.size(); ++i) {
    const Tape::Node& node = tape.nodes_[i];
    std::vector<std::string> inputs;
    for (const Tape::Pullback* p = node.pullbacks; p; p = p->next)
      if (p->input >= 0) inputs.push_back(text(p->input));
    const std::string leaf = node.parameter ? "parameter " + node.parameter->name : "leaf";
    notes.nodes.push_back({node.op ? node.op->name : leaf,
                           list_of(inputs),
                           node.op && node.op->replay == Replay::always,
                           node.placements,
                           {node.shape, node.dtype, {}},
                           {},
                           ""});
  }
}

void TapeLog::watched(const Var& leaf, const Parameter*) {
  if (tape_.recomputing()) return;
  add_nodes(tape_, *notes_);
  notes_->nodes.back().value = excerpt(leaf.value(), values_are_equal(leaf.placements()));
}

void TapeLog::computed(const Var& result, const Op& op, std::span<const Var* const> inputs) {
  if (!result.tracked() || tape_.recomputing()) return;
  std::vector<std::string> names;
  for (const Var* input : inputs)
    if (input->defined()) names.push_back(input->tracked() ? text(tape_.place_of(*input)) : "const");
  add_nodes(tape_, *notes_);
  Node& node = notes_->nodes.back();
  node.inputs = list_of(names);
  node.value = excerpt(result.value(), values_are_equal(result.placements()));
  const std::string call = op.name + std::string(" at ");
  if (node.collective && call_.starts_with(call)) node.place = call_.substr(call.size());
}

void TapeLog::placement_changed(const Var& x) {
  const auto node = static_cast<size_t>(tape_.place_of(x));
  if (!x.tracked() || node >= notes_->nodes.size()) return;
  Node& changed = notes_->nodes[node];
  if (values_are_equal(x.placements()) && !values_are_equal(changed.placements) && changed.value.values.defined())
    changed.value = excerpt(x.value(), true);
  changed.placements = x.placements();
}

void TapeLog::walk_begins(bool) {
  add_nodes(tape_, *notes_);
  for (Node& node : notes_->nodes) node.cotangent = {};
}

void TapeLog::arrived(const Var& gradient, const std::string&, int64_t node, Placements placements) {
  const auto i = static_cast<size_t>(node);
  if (i < notes_->nodes.size())
    notes_->nodes[i].cotangent = excerpt(gradient.value(), cotangents_are_equal(placements));
}

}  // namespace weft
