// SPDX-License-Identifier: Apache-2.0
// check_scale finds gradients that are off by a factor, and names the parameter, the factor and the mistake.
#include "tests/support/on_ranks.h"
#include "weft/collectives/checks/scale.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {

using namespace placement_letters;

// An encoder, a temperature and batches of different sizes; rank 2's is empty.
struct Model {
  Parameter encoder{"encoder", data_of(0, {3, 2}, 1)}, temperature{"temperature", scalar(0.7)};
  std::vector<Parameter*> parameters{&encoder, &temperature};
  int ranks;

  explicit Model(const Communicator& comm) : ranks(comm.size()) {}
  static int64_t rows(int r) { return std::array{2, 3, 0, 1, 4}[static_cast<size_t>(r)]; }
  int64_t samples() const {
    int64_t count = 0;
    for (int r = 0; r < ranks; ++r) count += rows(r);
    return count;
  }
  Var features(Tape& tape, int r) const {
    return tanh(matmul(tape.constant(data_of(r, {rows(r), 3}, 2)), tape.watch(encoder)));
  }
  Var total(Tape& tape, const Var& z) const {
    const Var t = reshape(repeat(reshape(tape.watch(temperature), {1}), 0, z.size()), z.shape());
    return sum(square(exp(z * t)));
  }
  // The loss of the whole batch in one process.
  double whole() const {
    Tape tape;
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += total(tape, features(tape, r)).value().item();
    return sum / static_cast<double>(samples());
  }
  // Each rank's share: the sum of its samples' losses divided by the global count.
  std::function<Var(Tape&)> share(const Communicator& comm) const {
    return [this, &comm](Tape& tape) {
      return total(tape, features(tape, number(comm))) * (1 / static_cast<double>(samples()));
    };
  }
  // A step by hand: the gradients that `backward` leaves are summed over ranks and multiplied by a factor.
  std::function<std::vector<Tensor>()> summed(Communicator& comm, std::function<void(Tape&, Gradients&)> backward,
                                              double by = 1) const {
    return [this, &comm, backward, by] {
      Tape tape;
      Gradients grads;
      backward(tape, grads);
      std::vector<Tensor> result;
      for (const Parameter* p : parameters) {
        const Tensor own = grads.has(*p) ? grads[*p] : Tensor::zeros(p->value.shape(), DType::f64);
        result.push_back((Var(comm.all_reduce(own)) * by).value());
      }
      return result;
    };
  }
};

template <class Make> void expect_scale(Make make, std::initializer_list<const char*> said, Site site = Site::here()) {
  on_ranks({2, 3, 5}, [&](Communicator& comm) {
    const Model model(comm);
    const TrainingStep step = make(model, comm);
    expect_refusal([&] { check_scale(step, model.parameters, comm); }, said, site);
    const TrainingStep right = {model.share(comm), nullptr, [&] { return model.whole(); }};
    check_scale(right, model.parameters, comm);
  });
}

}  // namespace

TEST_CASE("the scale check reports factor 1 for correct gradients, however the loss is placed") {
  on_ranks([](Communicator& comm) {
    const Model model(comm);
    const auto share = model.share(comm);
    const std::function<Var(Tape&)> losses[] = {share, [&](Tape& tape) { return as_partial(share(tape), comm); },
                                                [&](Tape& tape) { return all_reduce(share(tape), comm); },
                                                [&](Tape& tape) { return all_reduce_equal(share(tape), comm); }};
    for (const auto& loss : losses)
      for (const Scale& scale : scales_of({loss, nullptr, [&] { return model.whole(); }}, model.parameters, comm)) {
        expect(scale.agree && scale.loss && scale.gradients, "no scale");
        expect(std::abs(*scale.loss - 1) < 1e-8 && std::abs(*scale.gradients - 1) < 1e-8,
               text(*scale.loss) + ", " + text(*scale.gradients));
      }
  });
}

TEST_CASE("the scale check names an extra division by the number of ranks") {
  expect_scale(
      [](const Model& model, Communicator& comm) {
        const auto backward = [&](Tape& tape, Gradients& grads) { tape.backward(model.share(comm)(tape), grads); };
        return TrainingStep{model.share(comm), model.summed(comm, backward, 1.0 / comm.size())};
      },
      {"every parameter alike: an extra division by the number of ranks", "'encoder': its gradient is",
       "times what it should be: one over the number of ranks", "'temperature': its"});
}

TEST_CASE("the scale check names a sum that should be a mean: a Replicated loss seeded with 1 on every rank") {
  expect_scale(
      [](const Model& model, Communicator& comm) {
        const auto backward = [&](Tape& tape, Gradients& grads) {
          const Var loss = all_reduce(model.share(comm)(tape), comm);
          tape.backward(loss, scalar(1), grads);
        };
        return TrainingStep{model.share(comm), model.summed(comm, backward)};
      },
      {"every parameter alike: reducer sum, not mean; or a loss that all ranks hold was seeded with 1",
       "times what it should be: the number of ranks"});
}

TEST_CASE("the scale check names a loss that is averaged over ranks twice, and does not blame backward") {
  expect_scale(
      [](const Model& model, Communicator& comm) {
        return TrainingStep{[&](Tape& tape) { return all_reduce(model.share(comm)(tape), comm) / comm.size(); },
                            nullptr, [&] { return model.whole(); }};
      },
      {"the loss was averaged over ranks, and its shares were, too", "'encoder': the slope of the losses is",
       "times what it should be: one over the number of ranks"});
  expect_scale(
      [](const Model& model, Communicator& comm) {
        return TrainingStep{[&](Tape& tape) { return model.share(comm)(tape) * comm.size(); }, nullptr,
                            [&] { return model.whole(); }};
      },
      {"the loss was multiplied by the number of ranks"});
}

TEST_CASE("the scale check finds no common factor if per-rank means of uneven batches are averaged") {
  expect_scale(
      [](const Model& model, Communicator& comm) {
        const auto own_mean = [&](Tape& tape) {
          const double count = static_cast<double>(std::max<int64_t>(1, Model::rows(number(comm))));
          return model.total(tape, model.features(tape, number(comm))) * (1 / count / comm.size());
        };
        return TrainingStep{own_mean, nullptr, [&] { return model.whole(); }};
      },
      {"do not add up to the objective", "'encoder': the slope of the losses is no multiple of what"});
}

TEST_CASE("the scale check names gradients that were never reduced") {
  expect_scale(
      [](const Model& model, Communicator& comm) {
        const auto own = [&] {
          Tape tape;
          Gradients grads;
          tape.backward(model.share(comm)(tape), grads);
          return std::vector<Tensor>{comm.all_reduce(grads[model.encoder]), grads[model.temperature]};
        };
        return TrainingStep{model.share(comm), own};
      },
      {"gradients differ between ranks: a bucket never reduced", "'temperature': the ranks have different gradients"});
}

// A loss of all ranks' features, computed on every rank; `gathered` gathers them.
template <class Gathered> TrainingStep with_gather(const Model& model, Communicator& comm, Gathered gathered) {
  const auto loss = [&model, &comm](Tape& tape, const Var& all) {
    return all_reduce(model.total(tape, as_varying(all, comm)), comm, ReduceOp::mean);
  };
  const auto rows = [&model] {
    Rows result;
    for (int r = 0; r < model.ranks; ++r) result.push_back(Model::rows(r));
    return result;
  };
  const auto right = [=, &model, &comm](Tape& tape) {
    return loss(tape, all_gather_v(model.features(tape, number(comm)), rows(), comm));
  };
  const auto backward = [=, &model, &comm](Tape& tape, Gradients& grads) {
    tape.backward(loss(tape, gathered(model.features(tape, number(comm)), rows())), grads);
  };
  return {right, model.summed(comm, backward)};
}

TEST_CASE("the scale check tells a gather without an adjoint from one whose adjoint ignores other ranks") {
  expect_scale(
      [](const Model& model, Communicator& comm) {
        return with_gather(model, comm, [&comm](const Var& own, const Rows& rows) {
          const int me = number(comm);
          Var all = comm.all_gather_v(detach(own).value(), rows);  // constants, except for this rank's own
          int64_t begin = 0;
          for (int r = 0; r < me; ++r) begin += rows[static_cast<size_t>(r)];
          const int64_t end = begin + rows[static_cast<size_t>(me)];
          return with_placement(concat({own.tape()->constant(all.value().slice(0, begin)), own,
                                        own.tape()->constant(all.value().slice(end, all.shape()[0]))},
                                       0),
                                comm, R);
        });
      },
      {"some parameters only: own slot re-inserted", "'encoder': its gradient is",
       "times what it should be: one over the number of ranks"});
  expect_scale(
      [](const Model& model, Communicator& comm) {
        return with_gather(model, comm, [&comm](const Var& own, const Rows& rows) {
          return with_placement(own.tape()->constant(comm.all_gather_v(detach(own).value(), rows)), comm, R);
        });
      },
      {"no gradient through a gather", "'encoder': its gradient is 0 times"});
}

TEST_CASE("the scale check names a single parameter with a wrong factor") {
  expect_scale(
      [](const Model& model, Communicator& comm) {
        const auto backward = [&](Tape& tape, Gradients& grads) { tape.backward(model.share(comm)(tape), grads); };
        const auto half = [=, &comm, &model] {
          std::vector<Tensor> all = model.summed(comm, backward)();
          all[1] = (Var(all[1]) * 7).value();
          return all;
        };
        return TrainingStep{model.share(comm), half};
      },
      {"'temperature': its gradient is 7 times what it should be"});
}

TEST_CASE("the scale check requires f64") {
  on_ranks({2}, [](Communicator& comm) {
    Parameter w("w", Tensor::zeros({2}));
    Parameter* const all[] = {&w};
    expect_refusal([&] { check_scale({}, all, comm); }, {"scale: 'w' is f32, but finite differences need f64"});
  });
}
