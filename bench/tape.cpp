// SPDX-License-Identifier: Apache-2.0
// P4 and P5: the cost of recording a tape and walking it back.
#include <fmt/format.h>

#include "bench/measuring/goal.h"
#include "bench/networks.h"
#include "bench/rivals/torch.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/elementwise.h"

namespace weft::bench {
namespace {

constexpr int length = 1000;

Var chain(Var y, const Var& other) {
  for (int i = 0; i < length; ++i) y = y + other;
  return y;
}

// The chain and its gradient with respect to x. The addend is a constant or x itself.
void forward_and_backward(const Parameter& p, const Tensor& addend, bool both_tracked) {
  Tape tape;
  Gradients gradients;
  const Var x = tape.watch(p);
  tape.backward(chain(x, both_tracked ? x : Var(addend)), Tensor::full({4}, 1), gradients);
}

std::vector<Check> op_cost() {
  const Parameter p("p", Tensor::full({4}, 1));
  const Tensor addend = Tensor::full({4}, 1e-3);
  Tensor buffer = addend.clone();
  Backend& cpu = backend(Device::cpu);
  const auto recorded = [&] {
    Tape tape;
    chain(tape.watch(p), addend);
  };
  const auto bare = [&] {
    for (int i = 0; i < length; ++i) cpu.binary(Binary::Add, buffer, addend, buffer);
  };
  const Rounds rounds({per(length, timed([&] { forward_and_backward(p, addend, false); })),
                       per(length, timed([&] { forward_and_backward(p, addend, true); })), per(length, timed(recorded)),
                       per(length, timed([=] { chain(addend, addend); })), per(length, timed(bare))});
  const auto line = [&](size_t which, const char* what, Sense sense) {
    return Check{
        what, duration(rounds.median(which)), duration(rounds.median(4)), middle(scaled(rounds.of(which), 1e9)), sense,
        100};
  };
  return {line(0, "ns per op, forward and backward", Sense::at_most),
          line(1, "the same with both operands tracked", Sense::shown), line(2, "forward, recorded", Sense::shown),
          line(3, "forward, no tape", Sense::shown)};
}

const Goal p4{"P4", "a recorded op costs at most 100 ns (1000 adds of 4 elements; theirs: the bare kernel)", op_cost};

std::vector<Check> op_cost_of_torch() {
  const Parameter p("p", Tensor::full({4}, 1));
  const Tensor addend = Tensor::full({4}, 1e-3);
  return against_torch(timed([&] { forward_and_backward(p, addend, false); }), "chain of adds", 15, 15);
}

const Goal p4_torch{"P4-torch", "and at most 1/15 of what PyTorch takes (all 1000 of them)", op_cost_of_torch};

// Mlp::step by hand: the same kernels in the same order, without allocations or lookups.
class ByHand {
 public:
  explicit ByHand(Mlp& net)
      : net_(net),
        n_(net.x.shape()[0]),
        h_({n_, net.w1.value.shape()[1]}),
        dh_(Tensor::like(h_)),
        y_({n_, net.w2.value.shape()[1]}),
        dy_(Tensor::like(y_)),
        losses_({n_}),
        share_(Tensor::full({n_}, 1.0 / static_cast<double>(n_))),
        loss_(Shape{}) {
    for (const Parameter& p : net.parameters()) gradients_.push_back(Tensor::like(p.value));
  }

  void step() {
    const Tensor &x = net_.x, &w1 = net_.w1.value, &b1 = net_.b1.value, &w2 = net_.w2.value, &b2 = net_.b2.value;
    cpu_.matmul(x, false, w1, false, {&b1, {Unary::Relu, {}}}, h_);
    cpu_.matmul(h_, false, w2, false, {&b2, {}}, y_);
    const Indices targets({"cross_entropy", "target"}, net_.targets, y_.shape()[1]);
    cpu_.cross_entropy_rows(y_, targets, losses_);
    cpu_.reduce(Reduction::sum, losses_, Along(1, n_, 1), loss_);
    cpu_.cross_entropy_rows_pullback(y_, targets, share_, dy_);
    cpu_.matmul(dy_, false, w2, true, {}, dh_);
    cpu_.matmul(h_, true, dy_, false, {}, gradients_[2]);
    cpu_.reduce_outside(dy_, Along(dy_.shape(), -1), gradients_[3]);
    cpu_.slope(Unary::Relu, {}, h_, dh_, dh_);
    cpu_.matmul(x, true, dh_, false, {}, gradients_[0]);
    cpu_.reduce_outside(dh_, Along(dh_.shape(), -1), gradients_[1]);
    for (size_t i = 0; i < gradients_.size(); ++i)
      cpu_.accumulate(-Network::learning_rate, gradients_[i], net_.parameters()[i].value);
  }

 private:
  Backend& cpu_ = backend(Device::cpu);
  Mlp& net_;
  int64_t n_;
  Tensor h_, dh_, y_, dy_, losses_, share_, loss_;
  std::vector<Tensor> gradients_;
};

std::vector<Check> framework_tax() {
  Mlp taped(512, 784, 512, 128), plain(512, 784, 512, 128);
  ByHand by_hand(plain);
  const Rounds rounds({timed([&] { taped.step(); }), timed([&] { by_hand.step(); })}, 15);
  return {{"through the tape / by hand", duration(rounds.median(0)), duration(rounds.median(1)),
           middle(rounds.ratio(0, 1)), Sense::at_most, 1.10}};
}

const Goal p5{"P5", "an MLP step (784-512-128, batch 512) through the tape against the same kernels by hand",
              framework_tax};

}  // namespace
}  // namespace weft::bench
