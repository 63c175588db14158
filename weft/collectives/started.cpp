// SPDX-License-Identifier: Apache-2.0
// Collectives in two halves on the tape. Each half is a node, and a token connects them. The two halves share a state,
// which holds the started adjoint during backward.
#include "weft/collectives/collectives.h"
#include "weft/collectives/linear_collective.h"

namespace weft {
namespace {

const CollectiveOp start_op{"start"}, wait_op{"wait"};

}  // namespace

struct Started::State {
  virtual ~State() = default;
  virtual Var wait(const Var& token) = 0;
};

namespace {

template <class Verb> class Halves final : public Started::State, public std::enable_shared_from_this<Halves<Verb>> {
 public:
  Halves(const Verb& verb, const Var& x, Communicator& comm, Site site)
      : verb_(with_explicit_rows(verb, x, comm)),
        comm_(comm),
        site_(site),
        shape_(x.shape()),
        pending_(comm.start(verb_, x.value(), site)) {}

  Var token(const Var& x) {
    const auto pullback = [state = this->shared_from_this()](const Var&) { return state->wait_for_adjoint(); };
    return record(start_op, Tensor({0}, x.dtype(), x.device()), from(x, pullback));
  }

  Var wait(const Var& token) override {
    const auto pullback = [state = this->shared_from_this(), token = token.value()](const Var& g) {
      const Var sum_cotangent = cotangent_of_sum(state->verb_, g, state->comm_);
      state->adjoint_ = start(state->verb_.adjoint(), sum_cotangent, state->comm_, state->site_);
      return replicated_constant(token);
    };
    return with_placement(record(wait_op, pending_.wait(), from(token, pullback)), comm_, Verb::result);
  }

 private:
  Var wait_for_adjoint() {
    require(adjoint_.has_value(), "start: the ", op_of(verb_).name, " started at ", site_.file, ":", site_.line,
            " was not waited for, so no gradient can come back to its input");
    return as_gradient(verb_, std::exchange(adjoint_, std::nullopt)->wait(), shape_, comm_);
  }

  const Verb verb_;
  Communicator& comm_;
  const Site site_;
  const Shape shape_;
  Pending pending_;
  std::optional<Started> adjoint_;  // set by the pullback of the second half, waited for by that of the first
};

}  // namespace

Var Started::wait() { return state_->wait(token_); }

template <class Verb> Started start(const Verb& verb, const Var& x, Communicator& comm, Site site) {
  announce(op_of(verb).name, x, comm, site);
  check_input(verb, x, comm);
  using State = Halves<Verb>;
  const auto state = std::allocate_shared<State>(pool::Allocator<State>(), verb, x, comm, site);
  return Started(state, state->token(x));
}

template Started start(const AllReduce&, const Var&, Communicator&, Site);
template Started start(const ReduceScatter&, const Var&, Communicator&, Site);
template Started start(const AllGather&, const Var&, Communicator&, Site);
template Started start(const Reduce&, const Var&, Communicator&, Site);
template Started start(const Broadcast&, const Var&, Communicator&, Site);
template Started start(const Gather&, const Var&, Communicator&, Site);
template Started start(const Scatter&, const Var&, Communicator&, Site);
template Started start(const AllToAll&, const Var&, Communicator&, Site);
template Started start(const Permute&, const Var&, Communicator&, Site);
template Started start(const Scan&, const Var&, Communicator&, Site);

}  // namespace weft
