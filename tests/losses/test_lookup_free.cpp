// SPDX-License-Identifier: Apache-2.0
// Lookup-free and binary spherical quantization: entropies over all ranks, codes, masks. test_losses checks that losses
// and gradients equal one process.
#include <cmath>

#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/ops.h"
#include "weft/losses/common/division.h"
#include "weft/losses/quantizers/binary_spherical.h"
#include "weft/losses/quantizers/soft_corners.h"

using namespace weft;

namespace test_lookup_free {

constexpr Pass training = {.training = true};

Tensor some(const Shape& shape, uint64_t stream = 1, DType dtype = DType::f64) {
  return Tensor::uniform(shape, {5, stream}, -1, 1, dtype);
}
int64_t unequal(int rank) { return std::array{3, 1, 0, 4, 2}[static_cast<size_t>(rank % 5)]; }

// This rank's rows of a batch that is divided unevenly.
Tensor rows_of(const Tensor& all, Communicator& comm) {
  const Rows rows = comm.rows_of(comm.rank().value + 1 < comm.size() ? unequal(comm.rank().value) : 0);
  int64_t begin = 0, taken = 0;
  for (int r = 0; r < comm.size(); ++r) (r < comm.rank().value ? begin : taken) += rows[static_cast<size_t>(r)];
  const bool last = comm.rank().value + 1 == comm.size();
  return all.slice(begin, last ? all.shape()[0] : begin + rows[static_cast<size_t>(comm.rank().value)]);
}

double entropy_of(const std::vector<double>& p) {
  double sum = 0;
  for (const double v : p) sum -= v > 0 ? v * std::log(v) : 0;
  return sum;
}

// The mean probability of every corner, by definition.
std::vector<double> mean_assignment(const Tensor& x, double logit) {
  const int64_t tokens = x.shape()[0], bits = x.shape()[1];
  const std::vector<double> values = x.values();
  std::vector<double> mean(size_t{1} << bits);
  for (size_t code = 0; code < mean.size(); ++code)
    for (int64_t i = 0; i < tokens; ++i) {
      double p = 1;
      for (int64_t bit = 0; bit < bits; ++bit) {
        const double a = logit * values[static_cast<size_t>(i * bits + bit)];
        p /= 1 + std::exp(code >> (bits - 1 - bit) & 1 ? -a : a);
      }
      mean[code] += p / static_cast<double>(tokens);
    }
  return mean;
}

struct Graded {
  double value;
  Tensor gradient;
};
template <class Loss> Graded graded(const Tensor& x, Communicator& comm, Loss loss) {
  Tape tape;
  declare_group(tape, comm);
  const Var leaf = tape.watch(x), value = loss(leaf);
  return {value.value().item(), tape.gradient(value, {leaf})[0].value()};
}

LookupFreeOptions diversity_alone(int64_t bits) {
  return {.bits = bits,
          .inverse_temperature = 0.5,
          .entropy_weight = 1,
          .diversity = 1,
          .commitment_weight = 0,
          .dtype = DType::f64};
}
// -H(mean p) over all ranks' tokens.
Graded diversity(const Tensor& x, Communicator& comm, LookupFreeOptions o) {
  LookupFree with(o);
  o.diversity = 0;
  LookupFree without(o);
  return graded(x, comm, [&](const Var& v) { return with(v, training, comm).loss - without(v, training, comm).loss; });
}

void expect_near(double actual, double expected, double tolerance = 1e-12, Site site = Site::here()) {
  expect(std::abs(actual - expected) <= tolerance, text(actual) + " is not " + text(expected), site);
}

// S11. A library calls a differentiable all_reduce but continues with its input: its own mean, already divided by the
// number of ranks W. Each rank then has (H(p_r) + ln W) / W, and gradients of its own tokens alone.
TEST_CASE("the lookup-free diversity term is the entropy of the mean over all ranks' tokens") {
  const Tensor all = some({9, 3});
  run_ranks(1, [&](Communicator& one) {
    const Graded whole = diversity(all, one, diversity_alone(3));
    on_ranks({2, 3, 5}, [&](Communicator& comm) {
      const Tensor mine = rows_of(all, comm);
      const Graded ours = diversity(mine, comm, diversity_alone(3));
      expect_near(sum_over_ranks(ours.value, comm), whole.value);
      expect_near(-whole.value, entropy_of(mean_assignment(all, 2)));
      const Division division(mine.shape()[0], comm);
      expect_close(ours.gradient, whole.gradient.slice(division.first, division.first + division.mine()));
      if (division.mine() == 0) return;

      const std::vector<double> own = mean_assignment(mine, 2);
      std::vector<double> discarded = own;
      for (double& p : discarded) p /= comm.size();
      const double theirs = entropy_of(discarded);
      expect_near(theirs, (entropy_of(own) + std::log(comm.size())) / comm.size());
      expect(std::abs(theirs + whole.value) > 1e-2, "the figure of a discarded all_reduce should differ");
      const Graded local = graded(mine, comm, [&](const Var& x) {
        return as_partial(entropy(assigned_to_corners(x * 2.0, 1, 9) / static_cast<double>(division.mine())), comm);
      });
      const Tensor both = (Var(local.gradient) / comm.size() + Var(ours.gradient)).value();
      expect(max(abs(both)).value().item() > 1e-3, "so should its gradient");
    });
  });
}

// With a mask, the same library averages over an axis of extent one: its mean is each token's own assignment.
TEST_CASE("the lookup-free diversity term with a mask averages over the unmasked tokens") {
  const Tensor all = some({6, 2}), mask = Tensor::from({6}, {1, 0, 1, 1, 0, 1}, DType::u8);
  const Tensor counted = gather_rows(all, Tensor::from({4}, {0, 2, 3, 5}, DType::i64)).value();
  run_ranks(1, [&](Communicator& comm) {
    LookupFreeOptions o = diversity_alone(2);
    const double both = LookupFree(o)(all, training, comm, mask).loss.value().item();
    o.diversity = 0;
    const double of_tokens = LookupFree(o)(all, training, comm, mask).loss.value().item();
    expect_near(of_tokens - both, entropy_of(mean_assignment(counted, 2)));
    expect(of_tokens - both > of_tokens + 1e-3, "more than the mean of the tokens' entropies");
  });
}

TEST_CASE("the lookup-free loss and its gradient do not depend on how tokens are cut into chunks") {
  on_ranks({1, 3}, [](Communicator& comm) {
    const Tensor x = some({unequal(number(comm)) + 4, 5}, static_cast<uint64_t>(number(comm)));
    LookupFreeOptions o = diversity_alone(5);
    const Graded whole = diversity(x, comm, o);
    for (const int64_t chunk : {1, 3, 7, 8}) {
      o.chunk = chunk;
      const Graded cut = diversity(x, comm, o);
      expect_close(scalar(cut.value), scalar(whole.value));
      expect_close(cut.gradient, whole.gradient);
    }
  });
}

TEST_CASE("the lookup-free entropy by groups of bits is an upper bound, and exact for independent bits") {
  run_ranks(1, [](Communicator& comm) {
    const auto value = [&](const Tensor& x, int64_t groups) {
      LookupFreeOptions o = diversity_alone(4);
      o.groups = groups;
      return -diversity(x, comm, o).value;
    };
    const Tensor one = some({1, 4}), equal_pairs = Tensor::from({2, 4}, {9, 9, 9, 9, -9, -9, -9, -9}, DType::f64);
    for (const int64_t groups : {2, 4}) expect_near(value(one, groups), value(one, 1));
    for (const int64_t groups : {1, 2, 4}) expect_near(value(equal_pairs, groups), std::log(2) * double(groups), 1e-5);
  });
}

// A matrix of assignments of 2048 tokens to 2^18 codes would take 2 GiB.
TEST_CASE("the lookup-free loss never allocates a matrix of tokens and codes") {
  const int64_t before = pool::statistics().peak_bytes;
  run_ranks(1, [](Communicator& comm) {
    const LookupFreeOptions o = {.bits = 18, .chunk = 512};
    const Graded whole = graded(some({2048, 18}, 1, DType::f32), comm,
                                [&](const Var& x) { return LookupFree(o)(x, training, comm).loss; });
    expect(std::isfinite(whole.value), text(whole.value));
  });
  CHECK(pool::statistics().peak_bytes - before < 64 << 20);
}

TEST_CASE("lookup-free indices are sign bits, most significant first, and decode returns the values") {
  run_ranks(1, [](Communicator& comm) {
    const Tensor x = Tensor::from({2, 2, 3}, {1, -1, 0, .1, .2, .3, -1, -2, 5, -3, 0, -4}, DType::f64);
    LookupFree quantize({.bits = 3, .scale = 0.3, .dtype = DType::f64});
    const Quantized q = quantize(x, {}, comm);
    expect_same_bits(q.indices.value(), Tensor::from({2, 2}, {4, 7, 1, 0}, DType::i64));
    expect_same_bits(quantize.decode(q.indices).value(), q.values.value());
    expect_close(slice(q.values, 0, 0, 1), Tensor::from({1, 2, 3}, {0.3, -0.3, -0.3, 0.3, 0.3, 0.3}, DType::f64));
    const Tensor every = Tensor::arange(8), codes = quantize.decode(every).value();
    expect_same_bits(quantize(codes, {}, comm).indices.value(), every);
  });
}

TEST_CASE("lookup-free indices have the same bits however the tokens are distributed") {
  const Tensor all = some({12, 2, 4}, 8, DType::f32);
  Tensor whole, spherical;
  run_ranks(1, [&](Communicator& comm) {
    whole = LookupFree({.bits = 4})(all, training, comm).indices.value();
    spherical = BinarySpherical({.bits = 4})(all, training, comm).indices.value();
  });
  on_ranks([&](Communicator& comm) {
    const Tensor mine = rows_of(all, comm);
    const Division division(mine.shape()[0], comm);
    const auto own = [&](const Tensor& of) { return of.slice(division.first, division.first + division.mine()); };
    expect_same_bits(LookupFree({.bits = 4})(mine, training, comm).indices.value(), own(whole));
    expect_same_bits(BinarySpherical({.bits = 4})(mine, training, comm).indices.value(), own(spherical));
  });
}

TEST_CASE("a masked token has no effect on lookup-free quantization and passes unchanged") {
  on_ranks([](Communicator& comm) {
    const auto stream = static_cast<uint64_t>(number(comm));
    Tensor x = some({4, 3}, stream);
    const bool nobody = number(comm) % 2 == 1;  // every second rank has only masked tokens
    const Tensor mask = Tensor::from({4}, {0, nobody ? 0. : 1., 0, nobody ? 0. : 1.}, DType::u8);
    for (int i = 0; i < 3; ++i) x.mutate<double>()[i] = NAN;
    LookupFree quantize({.bits = 3, .dtype = DType::f64});
    const Graded with_nan = graded(x, comm, [&](const Var& v) {
      const Quantized q = quantize(v, training, comm, constant_like(mask, v));
      expect_same_bits(q.values.value().slice(0, 1), x.slice(0, 1));
      expect(q.indices.value().values()[0] == -1 && q.indices.value().values()[2] == -1, "indices of masked tokens");
      return q.loss + as_partial(sum(slice(q.values, 0, 1, 4)), comm);
    });
    expect(std::isfinite(with_nan.value), "a masked token's NaN counts");
    const std::vector<double> gradient = with_nan.gradient.values();
    for (int i = 0; i < 3; ++i)
      expect(gradient[size_t(i)] == 0 && gradient[size_t(6 + i)] == 1, "what a masked token gets");
    const Tensor none = Tensor::zeros({4}, DType::u8);
    const Graded all_masked =
        graded(x, comm, [&](const Var& v) { return quantize(v, training, comm, constant_like(none, v)).loss; });
    expect(all_masked.value == 0 && max(abs(all_masked.gradient)).value().item() == 0, "of no tokens at all");
  });
}

TEST_CASE("a rank can evaluate lookup-free quantization alone, without a loss") {
  on_ranks({3}, [](Communicator& comm) {
    if (number(comm) != 1) return;
    Tape tape;
    const Quantized q = LookupFree({.bits = 3})(tape.watch(some({2, 3}, 1, DType::f32)), {}, comm);
    expect(q.loss.value().item() == 0, "a loss in evaluation");
    expect_placement("the loss", q.loss, comm, {Placement::partial}, "");
  });
}

TEST_CASE("confident lookup-free assignments have finite entropies and gradients") {
  run_ranks(1, [](Communicator& comm) {
    const Tensor x = Tensor::from({2, 4}, {30, -30, 1e-3, 0, 30, 30, -30, 1e4}, DType::f32);
    const Graded loss = graded(x, comm, [&](const Var& v) { return LookupFree({.bits = 4})(v, training, comm).loss; });
    expect(std::isfinite(loss.value), text(loss.value));
    for (const double g : loss.gradient.values()) expect(std::isfinite(g), text(g));
  });
  const Tensor logits = Tensor::from({3, 1}, {0, 80, -3}, DType::f32);
  CHECK(entropy_of_assignments(logits).value().item() == Approx(std::log(2) + 0.19080).epsilon(1e-4));
  CHECK(entropy_of_assignments(logits.slice(1, 2)).value().item() == Approx(81 * std::exp(-80.)));
}

TEST_CASE("lookup-free quantization of bf16 tokens is computed in f32") {
  run_ranks(1, [](Communicator& comm) {
    const Tensor x = some({4, 3}).to(DType::bf16);
    const Quantized q = LookupFree({.bits = 3})(x, training, comm);
    expect(q.values.dtype() == DType::bf16 && q.loss.dtype() == DType::f32, "types");
    expect_close(q.loss, LookupFree({.bits = 3})(x.to(DType::f32), training, comm).loss);
  });
}

TEST_CASE("binary spherical codes lie on the sphere and depend only on directions") {
  run_ranks(1, [](Communicator& comm) {
    const Tensor x = some({5, 6});
    BinarySpherical quantize({.bits = 6, .dtype = DType::f64});
    const Quantized q = quantize(x, training, comm), further = quantize(3.0 * Var(x), training, comm);
    expect_close(sum(square(q.values), 1), Tensor::full({5}, 1, DType::f64));
    expect_same_bits(quantize.decode(q.indices).value(), q.values.value());
    expect_same_bits(further.indices.value(), q.indices.value());
    expect_close(further.loss, q.loss);
  });
}

TEST_CASE("lookup-free quantization refuses bad input and options") {
  run_ranks(1, [](Communicator& comm) {
    LookupFree quantize({.bits = 3});
    const auto refused = [&](const Tensor& x, const Var& mask, std::initializer_list<const char*> said) {
      expect_refusal([&] { quantize(x, {}, comm, mask); }, said);
    };
    refused(some({2, 4}), {}, {"LookupFree: (samples, ..., 3)", "f64 (2, 4)"});
    refused(Tensor::arange(6).reshape({2, 3}), {}, {"floating", "i64 (2, 3)"});
    refused(some({2, 3}), Tensor::zeros({3}, DType::u8), {"the mask of (2, 3) is u8 (2)", "u8 (3)"});
    expect_refusal([&] { quantize.decode(Tensor::from({1}, {8}, DType::i64)); }, {"index 8", "not in 0..7"});
    expect_refusal([] { LookupFree({.bits = 6, .groups = 4}); }, {"6 bits", "4 equal groups"});
    expect_refusal([] { LookupFree({.bits = 40}); }, {"2^40", "groups"});
    expect_refusal([] { LookupFree({.bits = 49, .groups = 49}); }, {"2^48"});
  });
}

}  // namespace test_lookup_free
