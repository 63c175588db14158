// SPDX-License-Identifier: Apache-2.0
// Biases of products and convolutions on the card, with every activation that leaves them to the product or not.
#include <array>

#include "tests/kernels/cuda_checks.h"
#include "weft/engine/kernels/scalar_ops.h"

using namespace weft;

namespace {

const std::vector<Activation> activations = {{}, {Unary::Relu, {}}, {Unary::Gelu, {}}};

// Sums of quarters are exact, but in bf16 a result may be rounded before its bias is added.
double tolerance(DType type, const Activation& activation) {
  return type == DType::bf16 ? 2 : activation.op == Unary::Gelu ? 16 : 0;
}

// Values at a place that is aligned to so many bytes, and to no more.
Tensor at_alignment(size_t bytes, const Tensor& x) {
  const auto before = static_cast<int64_t>(bytes / size_of(x.dtype()));
  Tensor view = Tensor({before + x.size()}, x.dtype(), Device::cuda).slice(before, before + x.size());
  view.copy_from(x.reshape({x.size()}));
  return view.reshape(x.shape());
}

// With whole tensors, and with every other one misaligned.
template <class Verb> void compare_aligned_too(double ulps, const Tensors& in, const Tensor& out, const Verb& verb) {
  compare(ulps, in, {out}, verb);
  Tensors there, host_out = {out.clone()}, card_out = {out.to(Device::cuda)};
  for (const Tensor& x : in) there.push_back(x.to(Device::cuda));
  verb(backend(Device::cpu), in, host_out);
  verb(backend(Device::cuda), there, card_out);
  CHECK(close(card_out[0], host_out[0], ulps));
}

}  // namespace

TEST_CASE("the card adds the bias of every column to a product in any layout") {
  SKIP_WITHOUT_A_CARD();
  const std::vector<std::array<int64_t, 4>> cases = {{1, 1, 1, 1},   {1, 1, 12, 8},  {1, 12, 1, 8}, {1, 64, 8, 16},
                                                     {1, 8, 64, 16}, {1, 33, 65, 7}, {2, 3, 5, 4},  {1, 3, 4, 0},
                                                     {2, 0, 4, 3},   {1, 3, 0, 4}};
  for (const DType type : floating)
    for (const auto [batch, m, n, k] : cases)
      for (int bits = 0; bits < 8; ++bits)
        for (const Activation& activation : activations) {
          const bool ta = bits & 1, tb = bits & 2, share_b = bits & 4;
          const Shape a = ta ? Shape{k, m} : Shape{m, k}, b = tb ? Shape{n, k} : Shape{k, n};
          const auto many = [batch = batch](const Shape& s) { return batch == 1 ? s : s.with_inserted(0, batch); };
          INFO(text(type) << " " << batch << " of " << m << "x" << n << " by " << k << " variant " << bits << " op "
                          << int(activation.op));
          compare_aligned_too(tolerance(type, activation),
                              {sample(many(a), type), sample(share_b ? b : many(b), type), sample({n}, type)},
                              sample(many({m, n}), type),
                              VERB(matmul(in[0], ta, in[1], tb, {&in[2], activation}, out[0])));
        }
}

TEST_CASE("products with a bias may follow each other at places of any alignment") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : floating) {
    const Tensor x = sample({16, 32}, type), w = sample({32, 8}, type), bias = sample({8}, type);
    Tensor expected({16, 8}, type);
    backend(Device::cpu).matmul(x, false, w, false, {&bias}, expected);
    const auto matches = [&](size_t of_x, size_t of_w, size_t of_bias, size_t of_y) {
      Tensor y = at_alignment(of_y, expected);
      const Tensor there = at_alignment(of_bias, bias);
      y.copy_from(Tensor::zeros(y.shape(), type));
      backend(Device::cuda).matmul(at_alignment(of_x, x), false, at_alignment(of_w, w), false, {&there}, y);
      return close(y, expected, tolerance(type, {}));
    };
    const size_t value = size_of(type);
    for (const size_t bytes : {size_t{256}, size_t{16}, size_t{8}, value, size_t{32}, size_t{256}}) {
      INFO(text(type) << " at " << bytes << " bytes");
      CHECK(matches(bytes, 256, 256, 256));
      CHECK(matches(256, bytes, 256, 256));
      CHECK(matches(256, 256, bytes, 256));
      CHECK(matches(256, 256, 256, bytes));
    }
  }
}

TEST_CASE("the card adds the bias of every channel to a convolution, also part by part") {
  SKIP_WITHOUT_A_CARD();
  const std::vector<Convolution> cases = {
      {2, 5, 6, 3, 3, 3, 5, 6, 4, 1, 1, 1, 1, 1, 1},
      {3, 4, 4, 8, 1, 1, 4, 4, 16, 1, 1, 0, 0, 1, 1},
      {2, 4, 4, 0, 3, 3, 4, 4, 5, 1, 1, 1, 1, 1, 1},
      {0, 4, 4, 2, 3, 3, 4, 4, 2, 1, 1, 1, 1, 1, 1},
      {5, 65, 64, 64, 5, 5, 65, 64, 1, 1, 1, 2, 2, 1, 1}};  // 4 images and 1: each is 27 MB when unfolded in f32
  for (const DType type : floating)
    for (const Convolution& c : cases)
      for (const Activation& activation : activations) {
        if (c.channels == 64 && (type != DType::f32 || !activation.identity())) continue;
        INFO(text(type) << " " << c.channels << " channels to " << c.out_channels << " op " << int(activation.op));
        const Tensor x = sample({c.batch, c.height, c.width, c.channels}, type), bias = sample({c.out_channels}, type);
        const Tensor w = sample({c.kernel_height, c.kernel_width, c.channels, c.out_channels}, type, -1, 1);
        compare_aligned_too(tolerance(type, activation), {x, w, bias},
                            sample({c.batch, c.out_height, c.out_width, c.out_channels}, type),
                            VERB(convolve(c, in[0], in[1], {&in[2], activation}, out[0])));
      }
}

TEST_CASE("NaN and infinity stay what they are behind a bias and a relu on the card") {
  SKIP_WITHOUT_A_CARD();
  for (const Activation& activation : {Activation{}, Activation{Unary::Relu, {}}})
    compare_aligned_too(0,
                        {Tensor::from({4, 1}, {not_a_number, infinity, -infinity, 1}), Tensor::full({1, 8}, 1),
                         sample({8}, DType::f32)},
                        Tensor::zeros({4, 8}), VERB(matmul(in[0], false, in[1], false, {&in[2], activation}, out[0])));
}

TEST_CASE("a graph repeats products with a bias, also of extents that are new to it") {
  SKIP_WITHOUT_A_CARD();
  const auto on_card_of = [](const Shape& shape) { return sample(shape, DType::f32).to(Device::cuda); };
  Tensor x = on_card_of({17, 24}), y = on_card_of({17, 8});
  const Tensor w = on_card_of({24, 8}), bias = on_card_of({8});
  Tensor other = on_card_of({8, 8});
  backend(Device::cuda).matmul(w, true, w, false, {}, other);  // cuBLAS is set up
  const auto graph = backend(Device::cuda).make_graph();
  for (int step = 0; step < 4; ++step) {
    x.copy_from(sample({17, 24}, DType::f32));
    graph->run([&] { backend(Device::cuda).matmul(x, false, w, false, {&bias}, y); }, [] {});
    const Tensor host_bias = bias.to(Device::cpu);
    Tensor expected({17, 8}, DType::f32);
    backend(Device::cpu).matmul(x.to(Device::cpu), false, w.to(Device::cpu), false, {&host_bias}, expected);
    CHECK(close(y, expected, 0));
  }
}

TEST_CASE("products with a bias keep 24 bits of f32 unless TF32 is allowed, also one after the other") {
  SKIP_WITHOUT_A_CARD();
  const auto full = [](const Shape& shape, double value) {
    return Tensor::full(shape, value, DType::f32, Device::cuda);
  };
  const Tensor x = full({64, 64}, 1 + 0x1p-15), w = full({64, 64}, 1), bias = full({64}, 0.5);
  Tensor y = full({64, 64}, 0);
  for (const bool allowed : {false, true, false}) {
    backend(Device::cuda).allow_tf32(allowed);
    backend(Device::cuda).matmul(x, false, w, false, {&bias}, y);
    CHECK(y.values() == std::vector<double>(64 * 64, 64.5 + (allowed ? 0 : 64 * 0x1p-15)));
  }
}
