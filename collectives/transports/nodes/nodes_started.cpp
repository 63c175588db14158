// SPDX-License-Identifier: Apache-2.0
// Collectives in two halves on nodes. When all ranks of a node have started one, their leader takes what leaves the
// node, exchanges it with the leaders of the other nodes, and shows its ranks the board. It takes these steps one by
// one, whenever it waits or is asked whether a call is ready, and never waits between them.
#include <cstring>
#include <exception>
#include <optional>

#include "weft/collectives/transports/nodes/crossing.h"
#include "weft/collectives/transports/nodes/node_sum.h"
#include "weft/collectives/transports/nodes/nodes.h"

namespace weft {

class Nodes::Work {
 public:
  virtual ~Work() = default;
  virtual bool all_here() = 0;    // whether all ranks of this node have started the call
  virtual void take_terms() = 0;  // puts on a new board what leaves the node
  virtual NodeSwap swap() const = 0;
  virtual void unpack(const Part& part) = 0;
  virtual std::optional<NodeSwap> gathering() { return {}; }  // a second swap, of what came of the first
  virtual void unpack_gathered(const Part&) {}
  virtual void read(std::byte* board, Read read) = 0;  // on every rank, when the board is complete
  Tensor board;                                        // on the leader

 protected:
  std::byte* new_board(State& state, size_t bytes) {
    const auto size = static_cast<int64_t>(bytes);
    board = Tensor(state.later.terms->allocate_shown(bytes), 0, {size}, DType::u8);
    return board.mutate<std::byte>();
  }
};

class Nodes::StartedCall final : public Transport::Request {
 public:
  StartedCall(std::shared_ptr<State> state, const Call& call, size_t longest, std::unique_ptr<Work> work)
      : state_(std::move(state)), later_(state_->later), call_(call), longest_(longest), work_(std::move(work)) {
    if (leads()) {
      later_.begun.push_back(this);
      later_.unfinished->add(*this);
    } else {
      shown_ = later_.results->start(call_, Tensor({0}, DType::u8), longest_);
    }
  }
  // A leader does its part even if its own rank reads nothing.
  ~StartedCall() override {
    if (leads() && step_ != Step::done && !std::uncaught_exceptions()) complete();
    later_.unfinished->remove(*this);
    std::erase(later_.begun, this);
  }
  bool ready() override {
    if (!later_.stepping) {
      Step before = Step::done;
      for (StartedCall* const call : std::vector(later_.begun)) before = call->go_on(before);
    }
    return shown_ && shown_->ready() && (leads() || work_->all_here());
  }
  void finish(Read read) override {
    if (leads()) complete();
    shown_->finish([&](const Part& part) { work_->read(const_cast<std::byte*>(part.peers[0]), read); });
  }

 private:
  enum class Step : uint8_t { terms, swapping, gathering, done };
  bool leads() const { return later_.first != nullptr; }

  // On a leader: takes the steps for which it need not wait, each after the call before, whose step is given. Returns
  // its own.
  Step go_on(Step before) {
    const auto need_not_wait = [&] { return step_ == Step::terms ? work_->all_here() : !swap_ || swap_->ready(); };
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
      work_->take_terms();
      begin_swap(*later_.first, work_->swap(), Step::swapping);
    } else if (step_ == Step::swapping) {
      swap_->finish([&](const Part& part) { work_->unpack(part); });
      swap_.reset();
      step_ = Step::gathering;
      if (const std::optional<NodeSwap> gathering = work_->gathering())
        begin_swap(*later_.second, *gathering, Step::gathering);
    } else {
      if (swap_) swap_->finish([&](const Part& part) { work_->unpack_gathered(part); });
      show();
    }
    later_.stepping = false;
  }
  void begin_swap(Transport& leaders, const NodeSwap& swap, Step step) {
    const auto [first, last] = swap.out;
    swap_ = leaders.start(call_, work_->board.slice(static_cast<int64_t>(first), static_cast<int64_t>(last)),
                          swap.longest, swap.ranges());
    step_ = step;
  }
  void show() {
    swap_.reset();
    shown_ = later_.results->start(call_, std::move(work_->board), longest_);
    step_ = Step::done;
    std::erase(later_.begun, this);
    later_.unfinished->remove(*this);
  }

  const std::shared_ptr<State> state_;
  State::Later& later_;
  const Call call_;
  const size_t longest_;
  std::unique_ptr<Work> work_;
  Step step_ = Step::terms;
  std::unique_ptr<Request> swap_, shown_;
};

class Nodes::ExchangeWork final : public Work {
 public:
  ExchangeWork(State& state, const Call& call, Tensor mine, size_t longest, const Ranges& ranges)
      : state_(state), longest_(longest) {
    const Crossing::Table table = Crossing::table_of({mine.data<std::byte>(), mine.bytes()}, ranges);
    entries_ = table.size();
    const size_t bytes = entries_ * sizeof(Range);
    Tensor own({static_cast<int64_t>(bytes)}, DType::u8);
    std::memcpy(own.mutate(), table.data(), bytes);
    tables_ = state.later.tables->start(call, std::move(own), bytes);
    terms_ = state.later.terms->start(call, std::move(mine), longest);
  }
  bool all_here() override { return terms_->ready() && (!tables_ || tables_->ready()); }

  void take_terms() override {
    read_tables();
    std::byte* const board = new_board(state_, crossing_->board_bytes());
    terms_->finish([&](const Part& part) {
      for (size_t i = 0; i < part.peers.size(); ++i) crossing_->pack(i, part.peers[i], board);
      keep_own(part);
    });
  }
  NodeSwap swap() const override { return crossing_->swap(); }
  void unpack(const Part& part) override { crossing_->unpack(part, board.mutate<std::byte>()); }

  void read(std::byte* board, Read read) override {
    if (!crossing_) read_tables();
    const NodeMap& map = state_.map;
    const auto me = static_cast<size_t>(state_.local->rank());
    std::vector<const std::byte*> at(map.ranks());
    for (size_t r = 0; r < at.size(); ++r)
      if (map.node_of[r] != map.node) at[r] = crossing_->bytes_of(r, me, board);
    const auto read_with = [&](std::span<const std::byte* const> here) {
      for (size_t i = 0; i < here.size(); ++i) at[static_cast<size_t>(map.here()[i])] = here[i];
      read({0, longest_, at});
    };
    if (state_.network)
      read_with(own_at_);
    else
      terms_->finish([&](const Part& part) { read_with(part.peers); });
  }

 private:
  void read_tables() {
    std::vector<Crossing::Table> tables(state_.map.here().size(), Crossing::Table(entries_));
    tables_->finish([&](const Part& part) {
      for (size_t i = 0; i < tables.size(); ++i) std::memcpy(tables[i].data(), part.peers[i], entries_ * sizeof(Range));
    });
    tables_.reset();
    crossing_.emplace(state_.map, longest_, std::move(tables));
  }
  // A leader finishes the call of its node before it reads, so it copies what it reads of its node.
  void keep_own(const Part& part) {
    size_t bytes = 0;
    const auto range = [&](size_t i) { return crossing_->read_here(i, 0); };
    for (size_t i = 0; i < part.peers.size(); ++i) bytes += range(i).size();
    own_.resize(bytes);
    std::byte* place = own_.data();
    for (size_t i = 0; i < part.peers.size(); ++i) {
      const auto [first, last] = range(i);
      own_at_.push_back(first < last ? place - first : nullptr);
      if (first < last) place = std::copy(part.peers[i] + first, part.peers[i] + last, place);
    }
  }

  State& state_;
  const size_t longest_;
  size_t entries_;
  std::unique_ptr<Request> tables_, terms_;
  std::optional<Crossing> crossing_;
  std::vector<std::byte> own_;
  std::vector<const std::byte*> own_at_;
};

class Nodes::SumWork final : public Work {
 public:
  SumWork(State& state, const Call& call, Tensor mine, Tensor result, const Reduction& reduction)
      : state_(state),
        rank_(state.flat->rank()),
        result_(std::move(result)),
        bytes_(std::max(mine.bytes(), result_.bytes())),
        sum_(state.map, reduction, bytes_),
        terms_(state.later.terms->start(call, std::move(mine), bytes_)) {}
  bool all_here() override { return terms_->ready(); }
  void take_terms() override {
    std::byte* const board = new_board(state_, sum_.board_bytes());
    terms_->finish([&](const Part& part) { sum_.fold_subtrees(part.peers, {0, bytes_}, board); });
  }
  NodeSwap swap() const override { return sum_.swap(); }
  void unpack(const Part& part) override { sum_.unpack(part, board.mutate<std::byte>()); }
  std::optional<NodeSwap> gathering() override {
    sum_.fold_slice(board.mutate<std::byte>());
    if (!sum_.plan().gathers) return {};
    return sum_.gathering();
  }
  void unpack_gathered(const Part& part) override { sum_.unpack_gathered(part, board.mutate<std::byte>()); }
  void read(std::byte* board, Read) override {
    sum_.take(rank_, board, {result_.mutate<std::byte>(), result_.bytes()});
  }

 private:
  State& state_;
  const int rank_;
  Tensor result_;
  const size_t bytes_;
  const NodeSum sum_;
  std::unique_ptr<Request> terms_;
};

std::unique_ptr<Transport::Request> Nodes::start(const Call& call, Tensor mine, size_t longest, Ranges ranges) {
  State& state = *state_;
  if (state.map.nodes() == 1) return state.local->start(call, std::move(mine), longest, ranges);
  auto work = std::make_unique<ExchangeWork>(state, call, std::move(mine), longest, ranges);
  return std::make_unique<StartedCall>(state_, call, longest, std::move(work));
}

std::unique_ptr<Transport::Request> Nodes::start_reduction(const Call& call, Tensor mine, Tensor result,
                                                           const Reduction& reduction) {
  State& state = *state_;
  if (state.map.nodes() == 1) return state.local->start_reduction(call, std::move(mine), std::move(result), reduction);
  const size_t bytes = std::max(mine.bytes(), result.bytes());
  if (!SumPlan(state.map, reduction, bytes).adds())
    return Transport::start_reduction(call, std::move(mine), std::move(result), reduction);
  auto work = std::make_unique<SumWork>(state, call, std::move(mine), std::move(result), reduction);
  return std::make_unique<StartedCall>(state_, call, bytes, std::move(work));
}

}  // namespace weft
