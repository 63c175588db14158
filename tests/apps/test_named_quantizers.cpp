// SPDX-License-Identifier: Apache-2.0
// The parts of train_vq besides its network: quantizers by name, code usage, sums over blocks.
#include <cmath>

#include "apps/shared/choices/named_quantizer.h"
#include "apps/shared/evaluation/exact_sum.h"
#include "apps/shared/evaluation/reconstruction.h"
#include "apps/shared/report/picture.h"
#include "tests/support/on_ranks.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/quantizers/finite_scalar.h"

namespace weft {
namespace {

TEST_CASE("every named quantizer gives the number of indices per token that it states, below its number of codes") {
  run_ranks(1, [](Communicator& comm) {
    for (const std::string& name : names_of_quantizers())
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
        const NamedQuantizer named = quantizer_named(name, {.codes = 64, .dim = 8}, {.key = {1}, .dtype = dtype});
        const Tensor tokens = Tensor::normal({6, 5, named.dim}, {2}, 0, 1, dtype);
        for (const bool training : {true, false}) {
          const Quantized q = (*named.quantizer)(tokens, {.training = training}, comm);
          named.quantizer->update(comm, {});
          expect(q.values.shape() == tokens.shape(), name + ": values " + text(q.values.shape()));
          expect(q.indices.size() == 30 * named.parts, name + ": indices " + text(q.indices.shape()));
          for (const double index : q.indices.value().values())
            expect(index >= 0 && index < static_cast<double>(named.codes), name + ": index " + text(index));
          CodeUsage usage(named.parts, named.codes);
          usage.add(q.indices.value());
          expect(usage.perplexity() > 1 && usage.dead() < named.codes * named.parts, name + ": usage");
        }
      }
  });
}

TEST_CASE("a named quantizer refuses invalid settings") {
  const auto make = [](const char* name, const QuantizerSettings& settings) {
    return [=] { quantizer_named(name, settings, {.key = {1}}); };
  };
  for (const char* name : {"lfq", "bsq", "fsq", "residual-fsq"})
    expect_refusal(make(name, {.codes = 500}), {"--codes 500", "power of two"});
  expect_refusal(make("grouped-residual-vq", {.dim = 7}), {"--dim 7", "equal groups"});
  expect_refusal(make("vq-vq", {}), {"none called 'vq-vq'"});
}

TEST_CASE("code usage covers the tokens of all ranks, separately for each index position") {
  on_ranks([](Communicator& comm) {
    CodeUsage usage(2, 4);  // index position 0 uses codes 0 and 1 equally, position 1 only code 3
    usage.add(Tensor::from({2, 2}, {0, 3, 1, 3}, DType::i64));
    if (number(comm) == 0) usage.add(Tensor({0, 2}, DType::i64));
    usage.over(comm);
    const double ranks = comm.size();
    expect(usage.most_used_first() == std::vector<double>{2 * ranks, ranks, ranks, 0, 0, 0, 0, 0}, "the counts");
    expect(usage.dead() == 5, "dead codes");
    expect(std::abs(usage.perplexity() - std::sqrt(2.0)) < 1e-12, "two codes, and one");
  });
}

TEST_CASE("a sum over blocks has the same bits for any division") {
  const Tensor terms = Tensor::normal({40, 3}, {6}, 0, 1e3, DType::f64);
  Tensor expected;
  for (const int ranks : {1, 2, 3, 5, 8})
    run_ranks(ranks, [&](Communicator& comm) {
      ExactSum sum({3});
      for (int64_t i = number(comm); i < 40; i += ranks) sum.add(terms.slice(i, i + 1).reshape({3}));
      const Tensor all = sum.over(comm);
      if (ranks > 1)
        expect_same_bits(all, expected);
      else
        expected = all;
    });
  expect_close(expected, sum(Var(terms), 0));
}

TEST_CASE("image reconstruction has the same error and codes on any number of ranks") {
  LabelledImages data{Tensor({250, 8, 8, 1}, DType::u8), Tensor::zeros({250}, DType::i64)};
  for (int64_t i = 0; i < data.images.size(); ++i) data.images.mutate<uint8_t>()[i] = static_cast<uint8_t>(i * i % 251);
  double expected = 0;
  std::vector<double> codes;
  Tensor picture;
  for (const int ranks : {1, 2, 3, 5})
    run_ranks(ranks, [&](Communicator& comm) {
      const Init init{.key = {4}};
      VqVae network("net", {.width = 4, .dim = 2}, init, std::make_unique<FiniteScalar>(std::vector<int64_t>{4, 4}));
      CodeUsage usage(1, 16);
      const double error = reconstruction_error(network, data, init, comm, &usage);
      const Tensor beside = beside_originals(network, data, init, comm);
      if (ranks == 1) {
        expected = error;
        codes = usage.most_used_first();
        picture = beside;
        const Tensor images = take(data, samples_between(0, 250)).images;
        const auto [made, tokens] = network(images, {}, comm);
        double sum = 0, all = 0;
        for (const double e : square(made - images).value().values()) sum += e;
        for (const double count : codes) all += count;
        expect(std::abs(error - sum / static_cast<double>(images.size())) < 1e-6, "a mean over pixels");
        expect(all == 250 * 4, "every token once");
      }
      expect(error == expected && usage.most_used_first() == codes, "the same error and codes");
      expect_same_bits(beside, picture);
      expect(beside.shape() == Shape{6 * 9 - 1, 12 * 9 - 1, 1}, "three rows, and three under them");
    });
}

}  // namespace
}  // namespace weft
