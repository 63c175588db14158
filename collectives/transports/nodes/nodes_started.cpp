// SPDX-License-Identifier: Apache-2.0
// Collectives in two halves on nodes. When all ranks of a node have started one, their leader takes what leaves the
// node, exchanges it with the leaders of the other nodes, and shows its ranks the board. It takes these steps one by
// one, whenever it waits or is asked whether a call is ready, and never waits between them.
#include <cstring>
#include <exception>
#include <optional>

#include "weft/collectives/transports/nodes/nodes.h"

namespace weft {

struct Nodes::Beginning {
  Tensor mine, result;  // no result: an exchange
  size_t longest;
  std::optional<NodeSteps> steps;  // of a reduction; those of an exchange depend on ...
  Crossing::Table table = {};      // ... what each rank of the node exposes and reads
};

class Nodes::Started final : public Transport::Request {
 public:
  Started(std::shared_ptr<State> state, const Call& call, Beginning begun)
      : state_(std::move(state)),
        later_(state_->later),
        call_(call),
        longest_(begun.longest),
        entries_(begun.table.size()),
        result_(std::move(begun.result)),
        steps_(std::move(begun.steps)) {
    if (entries_ > 0) {
      Tensor table({static_cast<int64_t>(entries_ * sizeof(Range))}, DType::u8);
      std::memcpy(table.mutate(), begun.table.data(), table.bytes());
      const size_t bytes = table.bytes();
      tables_ = later_.tables->start(call, std::move(table), bytes);
    }
    terms_ = later_.terms->start(call, std::move(begun.mine), longest_);
    if (leads()) {
      later_.begun.push_back(this);
      later_.unfinished->add(*this);
    } else {
      shown_ = later_.results->start(call_, Tensor({0}, DType::u8), longest_);
    }
  }
  // A leader does its part even if its own rank reads nothing.
  ~Started() override {
    if (leads() && step_ != Step::done && !std::uncaught_exceptions()) complete();
    later_.unfinished->remove(*this);
    std::erase(later_.begun, this);
  }
  bool ready() override {
    if (!later_.stepping) {
      Step before = Step::done;
      for (Started* const call : std::vector(later_.begun)) before = call->go_on(before);
    }
    return shown_ && shown_->ready() && (leads() || all_here());
  }
  void finish(Read read) override {
    if (leads()) complete();
    shown_->finish([&](const Part& part) {
      if (tables_) make_steps();
      if (result_.defined())
        steps_->take(part.peers[0], {result_.mutate<std::byte>(), result_.bytes()});
      else
        read_exchanged(part.peers[0], read);
    });
  }

 private:
  enum class Step : uint8_t { terms, swapping, gathering, done };
  bool leads() const { return later_.first != nullptr; }
  // Whether all ranks of this node have started the call.
  bool all_here() const { return terms_->ready() && (!tables_ || tables_->ready()); }

  // On a leader: takes the steps for which it need not wait, each after the call before, whose step is given. Returns
  // its own.
  Step go_on(Step before) {
    const auto need_not_wait = [&] { return step_ == Step::terms ? all_here() : !swap_ || swap_->ready(); };
    while (step_ < before && need_not_wait()) take_step();
    return step_;
  }
  // Takes all steps of this call, and of those before it.
  void complete() {
    while (step_ != Step::done) later_.begun.front()->take_step();
  }
  // It may wait, and a rank that waits goes on with all unfinished calls, so this must not begin again.
  void take_step() {
    later_.stepping = true;
    if (step_ == Step::terms) {
      take_terms();
      begin_swap(*later_.first, steps_->swap, Step::swapping);
    } else if (step_ == Step::swapping) {
      end_swap(steps_->swap);
      steps_->fold_sums(board_.mutate<std::byte>());
      step_ = Step::gathering;
      if (steps_->gathering) begin_swap(*later_.second, *steps_->gathering, Step::gathering);
    } else {
      if (swap_) end_swap(*steps_->gathering);
      show();
    }
    later_.stepping = false;
  }

  // Puts on a new board what leaves the node.
  void take_terms() {
    if (tables_) make_steps();
    const auto bytes = static_cast<int64_t>(steps_->board);
    board_ = Tensor(later_.terms->allocate_shown(steps_->board), 0, {bytes}, DType::u8);
    std::byte* const board = board_.mutate<std::byte>();
    terms_->finish([&](const Part& part) {
      for (const auto& [rank, range, at] : steps_->copies)
        std::copy_n(part.peers[rank] + range.first, range.size(), board + at);
      steps_->fold_subtrees(state_->map, part.peers, {0, longest_}, board);
      keep_own(part);
    });
  }
  void make_steps() {
    std::vector<Crossing::Table> tables(state_->map.here().size(), Crossing::Table(entries_));
    tables_->finish([&](const Part& part) {
      for (size_t i = 0; i < tables.size(); ++i) std::memcpy(tables[i].data(), part.peers[i], entries_ * sizeof(Range));
    });
    tables_.reset();
    steps_ = Crossing::steps(state_->map, static_cast<size_t>(state_->local->rank()), longest_, tables);
  }
  // A leader finishes the call of its node before it reads, so it copies what it reads of its node.
  void keep_own(const Part& part) {
    size_t bytes = 0;
    for (const Range& range : steps_->read_here) bytes += range.size();
    own_.resize(bytes);
    std::byte* place = own_.data();
    for (size_t i = 0; i < steps_->read_here.size(); ++i) {
      const auto [first, last] = steps_->read_here[i];
      own_at_.push_back(first < last ? place - first : nullptr);
      if (first < last) place = std::copy(part.peers[i] + first, part.peers[i] + last, place);
    }
  }

  void begin_swap(Transport& leaders, const NodeSteps::Swap& swap, Step step) {
    const auto [first, last] = swap.out;
    swap_ = leaders.start(call_, board_.slice(static_cast<int64_t>(first), static_cast<int64_t>(last)), swap.longest,
                          swap.ranges());
    step_ = step;
  }
  void end_swap(const NodeSteps::Swap& swap) {
    swap_->finish([&](const Part& part) { swap.put(part, board_.mutate<std::byte>()); });
    swap_.reset();
  }
  void show() {
    shown_ = later_.results->start(call_, std::move(board_), longest_);
    step_ = Step::done;
    std::erase(later_.begun, this);
    later_.unfinished->remove(*this);
  }

  void read_exchanged(const std::byte* board, Read read) {
    std::vector<const std::byte*> at = steps_->peers(board);
    const auto read_with = [&](std::span<const std::byte* const> here) {
      for (size_t i = 0; i < here.size(); ++i) at[static_cast<size_t>(state_->map.here()[i])] = here[i];
      read({0, longest_, at});
    };
    if (leads())
      read_with(own_at_);
    else
      terms_->finish([&](const Part& part) { read_with(part.peers); });
  }

  const std::shared_ptr<State> state_;
  State::Later& later_;
  const Call call_;
  const size_t longest_, entries_;
  Tensor result_, board_;  // the board is the leader's
  std::optional<NodeSteps> steps_;
  Step step_ = Step::terms;
  std::unique_ptr<Request> tables_, terms_;  // of the ranks of this node
  std::unique_ptr<Request> swap_, shown_;
  std::vector<std::byte> own_;
  std::vector<const std::byte*> own_at_;
};

std::unique_ptr<Transport::Request> Nodes::start(const Call& call, Tensor mine, size_t longest, Ranges ranges) {
  State& state = *state_;
  if (state.map.nodes() == 1) return state.local->start(call, std::move(mine), longest, ranges);
  Crossing::Table table = Crossing::table_of({mine.data<std::byte>(), mine.bytes()}, ranges);
  return std::make_unique<Started>(state_, call, Beginning{std::move(mine), {}, longest, {}, std::move(table)});
}

std::unique_ptr<Transport::Request> Nodes::start_reduction(const Call& call, Tensor mine, Tensor result,
                                                           const Reduction& reduction) {
  State& state = *state_;
  if (state.map.nodes() == 1) return state.local->start_reduction(call, std::move(mine), std::move(result), reduction);
  const size_t bytes = std::max(mine.bytes(), result.bytes());
  std::optional<NodeSteps> steps = reduction_steps(state.map, rank(), reduction, bytes);
  if (!steps) return Transport::start_reduction(call, std::move(mine), std::move(result), reduction);
  return std::make_unique<Started>(state_, call,
                                   Beginning{std::move(mine), std::move(result), bytes, std::move(steps)});
}

}  // namespace weft
