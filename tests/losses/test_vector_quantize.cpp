// SPDX-License-Identifier: Apache-2.0
// Special cases of VectorQuantize: ranks without tokens, recomputation, refusals. test_losses checks that losses and
// gradients equal one process.
#include "tests/losses/codebook_checks.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/quantizers/codebook/codebook_losses.h"
#include "weft/losses/quantizers/codebook/rotation.h"

using namespace weft;
using namespace weft::checks;

// VQP 25, 30 and 105: a rank that skips a collective blocks the others.
TEST_CASE("a rank without tokens takes part in VectorQuantize's collectives") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    for (const bool learnable : {false, true}) {
      VectorQuantizeOptions options = following();
      options.codebook.learnable = learnable;
      options.orthogonal_weight = learnable ? 1 : 0;
      options.orthogonal_active_only = true;
      options.diversity_weight = 1;
      VectorQuantize quantize("vq", options, {.key = {1}});
      for (uint64_t step = 0; step < 4; ++step) {
        Tape tape;
        declare_group(tape, comm);
        const Var x = tape.watch(tokens(step, 9));
        const bool all_masked = static_cast<int>(step) % comm.size() == number(comm) || step == 3;
        const Var none = constant_like(Tensor::full({9}, all_masked ? 0 : 1, DType::u8), x);
        const State before = state_of(quantize);
        const Quantized q = quantize(x, training(step), comm, none);
        const Var gradient = tape.gradient(q.loss + as_partial(sum(q.values), comm), {x})[0];
        quantize.update(comm, {8, step});
        for (const double index : q.indices.value().values()) expect((index == -1) == all_masked, "an index");
        if (!all_masked) continue;
        expect_same_bits(q.values.value(), x.value());
        expect_same_bits(gradient.value(), Tensor::full({9, dim}, 1));
        if (step == 3) expect(state_of(quantize) == before, "an update without tokens");
        if (step == 3) expect(q.loss.value().item() == 0, "a loss without tokens");
      }
    }
  });
}

// Upstream checks for ranks only once, when the module is constructed.
TEST_CASE("a quantizer made before its communicator works in any communicator") {
  VectorQuantizeOptions options = following();
  const State expected = state_after(3, options, steps(10, 1));
  std::vector<std::unique_ptr<VectorQuantize>> made;
  for (int i = 0; i < 3; ++i) made.push_back(std::make_unique<VectorQuantize>("vq", options, Init{.key = {1}}));
  run_ranks(3, [&](Communicator& comm) { steps(10, 1)(*made[static_cast<size_t>(number(comm))], comm); });
  for (const auto& quantize : made) CHECK(state_of(*quantize) == expected);
}

// VQP 222: learnable codebooks drifted apart.
TEST_CASE("a learnable codebook stays equal on all ranks and follows the whole batch's gradient") {
  VectorQuantizeOptions options = following();
  options.codebook.learnable = true;
  const auto trained = [](VectorQuantize& quantize, Communicator& comm) {
    for (uint64_t step = 0; step < 10; ++step) {
      Tape tape;
      declare_group(tape, comm);
      const auto [first, last] = part(40, comm);
      const Quantized q = quantize(tape.constant(tokens(step, 40).slice(first, last)), training(step), comm);
      Gradients gradients;
      tape.backward(q.loss, gradients);
      Tensor& codes = quantize.codebook.codes.value;
      const Tensor whole = comm.all_reduce(gradients[quantize.codebook.codes]);
      codes.copy_from((Var(codes) - Var(whole) * 0.1).value());
      quantize.update(comm, {8, step});
    }
  };
  const State one = state_after(1, options, trained);
  const State three = state_after(3, options, trained);
  CHECK(one[0].size() == three[0].size());
  for (size_t i = 0; i < one[0].size(); ++i) CHECK(one[0][i] == Approx(three[0][i]).epsilon(1e-4).margin(1e-4));
}

TEST_CASE("VectorQuantize counts a recomputed pass once") {
  run_ranks(2, [](Communicator& comm) {
    const auto state = [&](bool recomputed) {
      VectorQuantize quantize("vq", following(), {.key = {1}});
      Tape tape;
      declare_group(tape, comm);
      const Var x = tape.watch(tokens(0, 20));
      const auto pass = [&](std::span<const Var> in) { return sum(quantize(in[0], training(0), comm).values); };
      const Var y = recomputed ? checkpoint(pass, {x}) : pass({{x}});
      Gradients gradients;
      tape.backward(as_partial(y, comm), gradients);
      quantize.update(comm, {8});
      return state_of(quantize);
    };
    expect(state(true) == state(false), "it counts twice");
  });
}

TEST_CASE("VectorQuantize in evaluation has no loss, changes nothing and needs no other rank") {
  run_ranks(3, [](Communicator& comm) {
    VectorQuantize quantize("vq", following(), {.key = {1}});
    if (number(comm) != 1) return;
    const State before = state_of(quantize);
    const Quantized q = quantize(tokens(0, 9), {}, comm, Var(mask(0, 9)));
    expect(q.loss.value().item() == 0 && state_of(quantize) == before, "it has trained");
  });
}

TEST_CASE("VectorQuantize::decode returns the quantized values") {
  run_ranks(1, [](Communicator& comm) {
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool unit : {false, true})
        for (const Through through : {Through::straight, Through::rotation}) {
          VectorQuantize quantize("vq", {.codebook = {.dim = dim, .codes = 9, .unit = unit}, .through = through},
                                  {.key = {1}});
          const Quantized q = quantize(tokens(0, 24).reshape({4, 3, 2, dim}).to(dtype), training(0), comm);
          expect(q.values.dtype() == dtype && q.loss.dtype() == DType::f32, "their types");
          expect(q.indices.shape() == Shape{4, 3, 2}, "the shape of the indices");
          expect_same_bits(quantize.decode(q.indices).value().to(dtype), q.values.value());
        }
  });
}

TEST_CASE("the orthogonality loss can use a random subset of codes that is equal on all ranks") {
  on_ranks({1, 3}, [](Communicator& comm) {
    const auto gradient = [&](uint64_t step) {
      VectorQuantize quantize("vq",
                              {.codebook = {.dim = dim, .codes = 9, .learnable = true},
                               .commitment_weight = 0,
                               .codebook_weight = 0,
                               .orthogonal_weight = 1,
                               .orthogonal_codes = 4},
                              {.key = {1}});
      Tape tape;
      declare_group(tape, comm);
      const Quantized q = quantize(tape.constant(tokens(0, number(comm))), training(step), comm);
      Gradients gradients;
      tape.backward(q.loss, gradients);
      const Tensor mine = gradients[quantize.codebook.codes];
      return comm.all_reduce(mine).values();
    };
    const auto rows_moved = [](const std::vector<double>& g) {
      int64_t rows = 0;
      for (size_t k = 0; k < 9; ++k)
        rows += std::any_of(&g[k * dim], &g[k * dim] + dim, [](double v) { return v != 0; });
      return rows;
    };
    if (comm.size() == 1) return;  // no rank has a token, so there is no loss
    expect(rows_moved(gradient(0)) == 4, "four codes");
    expect(gradient(0) != gradient(1), "the key decides which");
  });
}

TEST_CASE("unevenness in chunks of tokens equals that of all tokens at once") {
  on_ranks({1, 3}, [](Communicator& comm) {
    const Tensor all = Tensor::normal({9000, 2}, {1, 1}, 0, 1, DType::f64), table = all.slice(0, 5);
    const auto [first, last] = part(9000, comm);
    Tape tape, plain;
    declare_group(tape, comm);
    const Var x = tape.watch(all.slice(first, last)),
              codes = with_placement(tape.watch(table), comm, Placement::replicated);
    const Var loss = keep_on(unevenness(x, codes, 0.7, 9000, comm), {0}, comm);
    const Var y = plain.watch(all), other = plain.watch(table);
    const Var shares = mean(softmax(pairwise_squared_distance(y, other) * -0.7), 0);
    const Var expected = std::log(5) + sum(shares * log(shares));
    expect_close(comm.all_reduce(loss.value()), expected);
    const auto mine = tape.gradient(loss, {x, codes}), whole = plain.gradient(expected, {y, other});
    expect_close(mine[0], slice(whole[0], 0, first, last));
    expect_close(comm.all_reduce(mine[1].value()), whole[1]);
  });
}

TEST_CASE("the rotation trick keeps the gradient's angle to the code and is finite everywhere") {
  const Tensor x = Tensor::normal({20, dim}, {1, 1}, 0, 1, DType::f64),
               q = Tensor::normal({20, dim}, {1, 2}, 0, 2, DType::f64);
  const Tensor g = Tensor::normal({20, dim}, {1, 3}, 0, 1, DType::f64);
  const auto pulled = [&](const Tensor& from) {
    Tape tape;
    const Var leaf = tape.watch(from);
    return tape.gradient(rotated_to(leaf, Var(q)), Var(g), {leaf})[0].value();
  };
  const auto lengths = [](const Var& a) { return norm(a, 1); };
  const auto cosines = [&](const Var& a, const Var& b) { return sum(a * b, 1) / (lengths(a) * lengths(b)); };
  const Tensor back = pulled(x);
  expect_close(rotated_to(x, q), q);
  expect_close(cosines(back, x), cosines(g, q));
  expect_close(lengths(back), lengths(g) * lengths(q) / lengths(x));
  for (const double scale : {0.0, 1.0, -1.0})  // a zero vector, the code's direction, and the opposite one
    for (const double value : pulled((Var(q) * scale).value()).values()) CHECK(std::isfinite(value));
}

TEST_CASE("VectorQuantize refuses bad input and options") {
  run_ranks(1, [](Communicator& comm) {
    const auto made = [](const VectorQuantizeOptions& options, DType dtype = DType::f32) {
      return std::make_unique<VectorQuantize>("vq", options, Init{.key = {}, .dtype = dtype});
    };
    expect_refusal([&] { made({.codebook = {.dim = 2, .codes = 0}}); }, {"0 codes of 2 features"});
    expect_refusal([&] { made({.codebook = {.dim = 2, .codes = 4, .decay = 1.5}}); },
                   {"decay of 1.5, which is not in 0..1"});
    expect_refusal([&] { made({.codebook = {.dim = 2, .codes = 4}}, DType::bf16); }, {"bf16", "make its module f32"});
    expect_refusal([&] { made({.codebook = {.dim = 2, .codes = 4}, .orthogonal_weight = 1}); },
                   {"'vq' has an orthogonal weight", "no gradient"});
    const auto quantize = made({.codebook = {.dim = 2, .codes = 4}});
    expect_refusal([&] { (*quantize)(Tensor({3, 5}), {}, comm); }, {"VectorQuantize: (samples, ..., 2)", "(3, 5)"});
    expect_refusal([&] { (*quantize)(Tensor({3, 2}, DType::f64), {}, comm); }, {"tokens are f64, 'vq.codes' is f32"});
    expect_refusal(
        [&] {
          (*quantize)(Tensor({3, 2}), {}, comm, Var(Tensor({2}, DType::u8)));
        },
        {"the mask of (3, 2) is u8 (3), not u8 (2)"});
    expect_refusal(
        [&] {
          (*quantize)(Tensor::full({3, 2}, 1e8), training(0), comm);
          quantize->update(comm, {});
        },
        {"not finite, or not below 2^24"});
    expect_refusal([&] { quantize->decode(Tensor::from({1}, {4}, DType::i64)); }, {"index 4", "0..3"});
  });
}
