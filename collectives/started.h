// SPDX-License-Identifier: Apache-2.0
#pragma once
// Collectives in two halves on the tape. Each half is a node, and a token connects them. The two halves share a state,
// which holds the started adjoint during backward.
#include "weft/collectives/linear_collective.h"

namespace weft {

inline const CollectiveOp start_op{"start"}, wait_op{"wait"};

// Any collective of verbs.h in two halves, such as start(AllGather{}, x, comm); between them this rank does other work.
// In backward the adjoint is in two halves, too: it starts when the gradient of the result is complete, and is waited
// for when the gradient of x is needed. Every started collective must be waited for.
class Started {
 public:
  Var wait();

  struct State;
  Started(std::shared_ptr<State> state, Var token) : state_(std::move(state)), token_(std::move(token)) {}

 private:
  std::shared_ptr<State> state_;
  Var token_;  // connects the two halves on the tape
};
template <LinearCollective C>
Started start(const C& collective, const Var& x, Communicator& comm, Site site = Site::here());

struct Started::State {
  virtual ~State() = default;
  virtual Var wait(const Var& token) = 0;
};

template <LinearCollective C>
class Halves final : public Started::State, public std::enable_shared_from_this<Halves<C>> {
 public:
  Halves(const C& collective, const Var& x, Communicator& comm, Site site)
      : collective_(with_explicit_rows(collective, x, comm)),
        comm_(comm),
        site_(site),
        shape_(x.shape()),
        pending_(comm.start(collective_, x.value(), site)) {}

  Var token(const Var& x) {
    const auto pullback = [state = this->shared_from_this()](const Var&) { return state->wait_for_adjoint(); };
    return record(start_op, Tensor({0}, x.dtype(), x.device()), from(x, pullback));
  }

  Var wait(const Var& token) override {
    const auto pullback = [state = this->shared_from_this(), token = token.value()](const Var& g) {
      const Var sum_cotangent = cotangent_of_sum(state->collective_, g, state->comm_);
      state->adjoint_ = start(state->collective_.adjoint(), sum_cotangent, state->comm_, state->site_);
      return replicated_constant(token);
    };
    return collective_result(record(wait_op, pending_.wait(), from(token, pullback)), comm_, C::result);
  }

 private:
  Var wait_for_adjoint() {
    require(adjoint_.has_value(), "start: the ", C::op_name, " started at ", text(site_),
            " was not waited for, so no gradient can come back to its input");
    return as_gradient(std::exchange(adjoint_, std::nullopt)->wait(), shape_);
  }

  const C collective_;
  Communicator& comm_;
  const Site site_;
  const Shape shape_;
  Pending pending_;
  std::optional<Started> adjoint_;  // set by the pullback of the second half, waited for by that of the first
};

inline Var Started::wait() { return state_->wait(token_); }

template <LinearCollective C> Started start(const C& collective, const Var& x, Communicator& comm, Site site) {
  announce(C::op_name, x, comm, site);
  check_input(collective, x, comm);
  expect_transpose(collective, comm);
  using State = Halves<C>;
  const auto state = std::allocate_shared<State>(pool::Allocator<State>(), collective, x, comm, site);
  return Started(state, state->token(x));
}

}  // namespace weft
