// SPDX-License-Identifier: Apache-2.0
// Encoders and the VQ-VAE: their results, the independence of images in a batch, and equal steps on ranks and on one
// process.
#include "tests/losses/codebook_checks.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/quantizers/binary_spherical.h"
#include "weft/losses/quantizers/finite_scalar.h"
#include "weft/losses/quantizers/lookup_free.h"
#include "weft/losses/quantizers/residual.h"
#include "weft/losses/quantizers/sim_vq.h"
#include "weft/losses/quantizers/vector_quantize.h"
#include "weft/models/encoders.h"
#include "weft/models/residual_block.h"
#include "weft/models/stages.h"
#include "weft/models/vq_vae.h"
#include "weft/optim/parallel/data_parallel.h"
#include "weft/optim/parallel/sharded.h"

namespace weft {
namespace {

using Made = std::function<std::unique_ptr<Quantizer>()>;

const Init init = {.key = {3}, .dtype = DType::f64};
Tensor images(int64_t count, int64_t height, int64_t width, int64_t channels, uint64_t step = 0) {
  return Tensor::uniform({count, height, width, channels}, {5, step}, 0, 1, DType::f64);
}
std::unique_ptr<Quantizer> levels() {
  return std::make_unique<FiniteScalar>(std::vector<int64_t>{5, 4, 3}, DType::f64);
}

// Expects `f` of a batch to equal `f` of each image.
template <class F> void expect_per_image(const Tensor& batch, F f) {
  const Tensor whole = f(batch);
  for (int64_t i = 0; i < batch.shape()[0]; ++i) expect_close(f(batch.slice(i, i + 1)), Var(whole.slice(i, i + 1)));
}

TEST_CASE("encoders give every image a row of features, and images do not affect one another") {
  const auto conv = conv_encoder("conv", 3, 4, init), mlp = mlp_encoder("mlp", 12 * 20 * 3, 16, init),
             head = projection_head("head", 32, 24, 5, init);
  for (const int64_t count : {0, 1, 4}) {
    const Tensor batch = images(count, 12, 20, 3);
    CHECK((*conv)(batch).shape() == Shape{count, 32});
    CHECK((*mlp)(batch).shape() == Shape{count, 16});
    CHECK((*head)((*conv)(batch)).shape() == Shape{count, 5});
    expect_per_image(batch, [&](const Tensor& x) { return (*head)((*conv)(x)).value(); });
    expect_per_image(batch, [&](const Tensor& x) { return (*mlp)(x).value(); });
  }
}

const EncoderChoice small = {.width = 2, .parts = 3, .height = 12, .across = 20, .channels = 3};
EncoderChoice called(const std::string& network, EncoderChoice choice = small) {
  choice.network = network;
  return choice;
}

TEST_CASE("every encoder by name gives as many features as it says, of each image alone") {
  for (const std::string& name : names_of_encoders())
    for (const int64_t parts : {1, 3, 5}) {
      INFO(name << ", " << parts << " parts");
      EncoderChoice choice = called(name);
      choice.parts = parts;
      const auto network = choice.make("encoder", init);
      CHECK((*network)(images(0, 12, 20, 3)).shape() == Shape{0, choice.features()});
      expect_per_image(images(3, 12, 20, 3), [&](const Tensor& x) { return (*network)(x).value(); });
      CHECK((*network)(images(3, 12, 20, 3)).shape() == Shape{3, choice.features()});
    }
  expect_refusal([] { called("cnov").make("encoder", init); }, {"no encoder called cnov"});
}

TEST_CASE("the gradients of residual networks equal finite differences") {
  for (const char* name : {"stages", "residual", "resnet18"}) {
    INFO(name);
    const auto network = called(name).make("encoder", init);
    const Tensor x = images(2, 12, 20, 3),
                 weights = Tensor::uniform({2, called(name).features()}, {6}, -1, 1, DType::f64);
    const auto loss = [&](const Var& input) { return sum((*network)(input)*Var(weights)); };
    Tape tape;
    Gradients gradients;
    tape.backward(loss(tape.constant(x)), gradients);
    for (Parameter* p : network->parameters()) {
      const Tensor before = p->value, direction = Tensor::uniform(before.shape(), {8}, -1, 1, DType::f64);
      const auto moved = [&](double by) {
        p->value = (Var(before) + Var(direction) * by).value();
        return loss(x).value().item();
      };
      constexpr double step = 1e-6;
      const double numeric = (moved(step) - moved(-step)) / (2 * step);
      p->value = before;
      INFO(p->name);
      CHECK(sum(Var(gradients[*p]) * Var(direction)).value().item() == Approx(numeric).epsilon(1e-3).margin(1e-5));
    }
  }
}

TEST_CASE("parts of a picture are described in order, from the top left") {
  const Tensor x = Tensor::from({1, 3, 4, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, DType::f64);
  CHECK(maxima_of_parts(x, 1).value().values() == std::vector<double>{12});
  CHECK(maxima_of_parts(x, 2).value().values() == std::vector<double>{6, 8, 10, 12});  // rows overlap
  CHECK(maxima_of_parts(x, 9).value().values() == x.values());
}

TEST_CASE("a residual block adds its input, and a 1x1 convolution of it where shapes change") {
  const auto unit = [](ResidualBlock& block) {  // both convolutions give zero, so what is left is the input
    for (Parameter* p : block.parameters())
      if (p->name.ends_with("second_norm.gamma")) p->value = Tensor::zeros(p->value.shape(), DType::f64);
  };
  ResidualBlock same("same", 2, 2, 1, init), changed("changed", 2, 3, 2, init);
  unit(same);
  const Tensor x = Tensor::uniform({2, 4, 4, 2}, {5}, -1, 1, DType::f64);
  expect_close(same(x), relu(x));
  CHECK(same.parameters().size() == 6);
  CHECK(changed.parameters().size() == 9);
  CHECK(changed(x).shape() == Shape{2, 2, 2, 3});
}

TEST_CASE("the number of training operations matches a count by hand") {
  const EncoderChoice grey;
  const auto conv = conv_encoder("encoder", 1, 32, init), mlp = mlp_encoder("encoder", 784, 256, init);
  const double first = 14 * 14 * 9 * 32, others = 7 * 7 * 9 * 32 * 64 + 4 * 4 * 9 * 64 * 128;  // multiplications
  CHECK(training_flops(conv->parameters(), grey) == 2 * (2 * first + 3 * others));
  CHECK(training_flops(mlp->parameters(), called("mlp", grey)) == 2 * (2 * 784 * 256 + 3 * 256 * 256));
  const EncoderChoice residual = called("residual", grey), resnet = called("resnet18", {.width = 2, .channels = 3});
  const double blocks = 49 * (9 * 32 * 64 + 9 * 64 * 64 + 32 * 64) + 16 * (9 * 64 * 128 + 9 * 128 * 128 + 64 * 128);
  CHECK(training_flops(residual.make("encoder", init)->parameters(), residual) == 2 * (2 * first + 3 * blocks));
  const double stem = 784 * 9 * 3 * 2, stages = 784 * 4 * 9 * 4 + 196 * (9 * 8 + 3 * 9 * 16 + 8) +
                                                49 * (9 * 32 + 3 * 9 * 64 + 32) + 16 * (9 * 128 + 3 * 9 * 256 + 128);
  CHECK(training_flops(resnet.make("encoder", init)->parameters(), resnet) == 2 * (2 * stem + 3 * stages));
}

TEST_CASE("a VQ-VAE gives tokens at a quarter of the resolution and images of the input's shape, each image alone") {
  run_ranks(1, [](Communicator& comm) {
    VqVae network("net", {.channels = 3, .width = 4, .dim = 3}, init, levels());
    for (const int64_t count : {0, 1, 4}) {
      const auto [made, tokens] = network(images(count, 12, 20, 3), {}, comm);
      expect(made.shape() == Shape{count, 12, 20, 3}, "the images");
      expect(tokens.indices.shape() == Shape{count, 3, 5}, "the indices");
      expect(tokens.values.shape() == Shape{count, 3, 5, 3}, "the codes");
    }
    expect_per_image(images(4, 12, 20, 3), [&](const Tensor& x) { return network(x, {}, comm).images.value(); });
  });
}

TEST_CASE("a VQ-VAE decodes images from indices alone, and last_weight is its last layer's weight") {
  run_ranks(1, [](Communicator& comm) {
    VqVae network("net", {.width = 4, .dim = 3}, init, levels());
    const auto [made, tokens] = network(images(4, 8, 8, 1), {}, comm);
    expect_close((*network.decoder)(network.quantizer().decode(tokens.indices)), made);
    Tensor& last = network.last_weight().value;
    last = (Var(last) * -2).value();
    expect_close(network(images(4, 8, 8, 1), {}, comm).images, made * -2);  // the last layer, and its bias is zero
  });
}

TEST_CASE("a VQ-VAE has bounded gradients for images of zeros") {
  run_ranks(1, [](Communicator& comm) {
    const BinarySphericalOptions options = {.bits = 4, .dtype = DType::f64};
    VqVae network("net", {.width = 4, .dim = 4}, init, std::make_unique<BinarySpherical>(options));
    Tape tape;
    Gradients gradients;
    const auto [made, tokens] =
        network(tape.constant(Tensor::zeros({2, 8, 8, 1}, DType::f64)), {.training = true}, comm);
    tape.backward(as_partial(sum(square(made - 1)), comm) + tokens.loss, gradients);
    for (const Parameter* p : network.parameters())
      for (const double g : gradients[*p].values()) expect(std::abs(g) < 1e4, p->name + " has the gradient " + text(g));
  });
}

VectorQuantizeOptions following() {
  return {.codebook = {.dim = 4, .codes = 8, .decay = 0.5, .dead_below = 0.5, .k_means_iterations = 3}};
}
std::unique_ptr<Quantizer> two_of(const VectorQuantizeOptions& options) {
  ResidualQuantizer::Layers layers;
  for (const char* name : {"vq.0", "vq.1"}) layers.push_back(std::make_unique<VectorQuantize>(name, options, init));
  return std::make_unique<ResidualQuantizer>(std::move(layers));
}
const std::vector<std::pair<std::string, Made>> quantizers = {
    {"vq", [] { return std::make_unique<VectorQuantize>("vq", following(), init); }},
    {"residual", [] { return two_of(following()); }},
    {"simvq", [] { return std::make_unique<SimVq>("vq", SimVqOptions{.dim = 4, .codes = 8}, init); }},
    {"lookup-free", [] { return std::make_unique<LookupFree>(LookupFreeOptions{.bits = 4, .dtype = DType::f64}); }},
};

// An optimizer whose gradients, step and values are those of replicated or of sharded parameters.
struct Whole {
  DataParallel training;
  Whole(VqVae& network, Communicator& comm) : training({{network.parameters(), Sgd{.momentum = 0.9}}}, comm) {}
  std::vector<double> values(const Parameter& parameter) { return parameter.value.values(); }
};
struct Divided {
  Sharded training;
  ShardedLayer encoder, decoder;
  Divided(VqVae& network, Communicator& comm)
      : training({{network.parameters(), Sgd{.momentum = 0.9}}}, comm),
        encoder("encoder", *network.encoder, training),
        decoder("decoder", *network.decoder, training) {
    network.encoder = &encoder;
    network.decoder = &decoder;
  }
  std::vector<double> values(const Parameter& parameter) { return training.whole(parameter).values(); }
};

// Parameters and buffers after some steps, with an uneven part of the images on each rank.
template <class Way> checks::State trained(const Made& quantizer, Communicator& comm) {
  VqVae network("net", {.width = 4, .dim = 4}, init, quantizer());
  Way way(network, comm);
  for (uint64_t step = 0; step < 4; ++step) {
    const auto [first, last] = checks::part(10, comm);
    const Pass pass = {.training = true, .key = {7, step}, .first_sample = first};
    Tape tape;
    declare_group(tape, comm);
    const Tensor mine = images(10, 8, 8, 1, step).slice(first, last);
    const auto [made, tokens] = network(tape.constant(mine), pass, comm);
    const Var error = share(sum(square(made - mine)), 10 * 8 * 8, comm);
    tape.backward(error + tokens.loss, way.training.gradients());
    way.training.step(0.1);
    network.quantizer().update(comm, {8, step});
  }
  checks::State state;
  for (const Parameter* p : network.parameters()) state.push_back(way.values(*p));
  for (const Parameter* p : network.buffers()) state.push_back(p->value.values());
  return state;
}

void expect_close_states(const checks::State& actual, const checks::State& expected) {
  expect(actual.size() == expected.size(), "as many tensors");
  for (size_t i = 0; i < actual.size(); ++i)
    expect_close(Tensor::from({static_cast<int64_t>(actual[i].size())}, actual[i], DType::f64),
                 Tensor::from({static_cast<int64_t>(expected[i].size())}, expected[i], DType::f64));
}

TEST_CASE("a VQ-VAE's training on ranks equals one process, with replicated and with sharded parameters") {
  for (const auto& [name, make] : quantizers) {
    INFO(name);
    checks::State expected;
    run_ranks(1, [&, &make = make](Communicator& comm) { expected = trained<Whole>(make, comm); });
    on_ranks({2, 3, 5}, [&, &make = make, &name = name](Communicator& comm) {
      expect_close_states(trained<Whole>(make, comm), expected);
      if (name != "simvq")  // it has a parameter outside of the units
        expect_close_states(trained<Divided>(make, comm), expected);
    });
  }
}

}  // namespace
}  // namespace weft
