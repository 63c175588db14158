// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random steps: each rank makes passes of its own between passes with collectives of all ranks, over random parameters,
// announces a last pass at random, and sometimes all discard a step.
#include <random>

#include "tests/support/chosen_terms.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/kernels/backend.h"

namespace weft {

// Random draws that are equal on all ranks, and draws of each rank.
struct Dice {
  std::mt19937 everyone, own;
  Dice(unsigned seed, int rank) : everyone(seed), own(seed * 31 + static_cast<unsigned>(rank) + 1) {}
  static int draw(std::mt19937& dice, int below) { return static_cast<int>(dice() % static_cast<unsigned>(below)); }
};

inline ChosenTerms::Choice choice(std::mt19937& dice) {
  ChosenTerms::Choice chosen;
  for (int p = 0; p < ChosenTerms::count; ++p)
    if (Dice::draw(dice, 3) == 0) chosen.push_back(p);
  return chosen;
}

class RandomProgram {
 public:
  RandomProgram(unsigned seed, Communicator& comm, Device device = Device::cpu)
      : comm_(comm),
        dice_(seed, number(comm)),
        terms_(comm, DType::f64, device),
        layout_(terms_.layout()),
        options_(options(dice_.everyone)),
        sync_(layout_, comm, options_) {}

  void step() {
    const int rounds = Dice::draw(dice_.everyone, 4);
    for (int round = 0; round < rounds; ++round) {
      if (Dice::draw(dice_.everyone, 2) == 0) pass_of_all();
      for (int own = Dice::draw(dice_.own, 3); own > 0; --own) pass();
    }
    if (Dice::draw(dice_.everyone, 5) > 0) {
      sync_.finish();
      check();
    }
    sync_.clear();
    plain_.clear();
  }

 private:
  static GradientSync::Options options(std::mt19937& dice) {
    const int kind = Dice::draw(dice, 4);
    return {.when = whens[Dice::draw(dice, 3)],
            .bucket = std::array{1, 50, 1500, 1 << 20}[static_cast<size_t>(Dice::draw(dice, 4))],
            .sharded = kind % 2 == 1,
            .frees = kind > 1};
  }

  void backward(Tape& tape, const Var& loss) {
    tape.backward(loss, plain_, Keep::tape);
    if (Dice::draw(dice_.own, 3) == 0) sync_.expect_last_pass();
    tape.backward(loss, sync_.gradients());
  }
  void pass() {
    const ChosenTerms::Choice chosen = choice(dice_.own);
    if (chosen.empty()) return;
    Tape tape;
    backward(tape, terms_.loss(tape, chosen, pass_++));
  }
  // Different parameters on each rank.
  void pass_of_all() {
    Tape tape;
    ChosenTerms::Choice chosen = choice(dice_.own);
    if (chosen.empty()) chosen = {2};
    const Var mine = terms_.loss(tape, chosen, pass_++);
    backward(tape, all_reduce(mine, comm_) * (0.5 + number(comm_)));
  }

  void check() {
    for (int p = 0; p < ChosenTerms::count; ++p) {
      const bool used = plain_.has(terms_[p]);
      const Tensor mine =
          (used ? plain_[terms_[p]] : Tensor::zeros(terms_[p].value.shape(), DType::f64)).to(Device::cpu);
      const bool anywhere = comm_.all_reduce(scalar(used), ReduceOp::maximum).item() > 0;
      const Tensor whole = comm_.all_reduce(mine);
      expect(sync_.present()[static_cast<size_t>(p)] == anywhere, "present if any rank has used it");
      if (!anywhere) continue;
      const Tensor sum = terms_.owned(sync_, layout_, p).to(Device::cpu),
                   expected = terms_.owned(sync_, layout_, p, whole);
      if (options_.frees)
        expect_close(sum, expected);
      else
        expect_same_bits(sum, expected);
    }
  }

  Communicator& comm_;
  Dice dice_;
  ChosenTerms terms_;
  const FlatLayout layout_;
  const GradientSync::Options options_;
  GradientSync sync_;
  Gradients plain_;
  int pass_ = 0;
};

}  // namespace weft
