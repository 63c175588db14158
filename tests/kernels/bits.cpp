// SPDX-License-Identifier: Apache-2.0
// Prints a line with a hash for everything that kernels compute: each differentiable op and its gradients, on the
// tests' samples and in sizes that fill vectors, tiles and blocks with remainders; and optimizer steps. bits.py
// compares the output on several kinds of CPU.
#include <cmath>
#include <cstdio>

#include "weft/data/files/checksum.h"
#include "weft/engine/kernels/cpu_kinds.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/images.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/nearest.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/scores.h"
#include "weft/engine/tape/tape.h"
#include "weft/optim/optimizer.h"

using namespace weft;

namespace {

uint64_t hash_of(const Tensor& x) {
  std::vector<double> values = x.to(DType::f64).values();
  for (double& value : values)
    if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();  // its sign differs between CPU families
  return checksum(values.data(), values.size() * sizeof(double));
}

void print(const std::string& name, DType dtype, const std::string& of, const Tensor& x) {
  std::printf("%s, %s, %s: %016llx\n", name.c_str(), text(dtype).c_str(), of.c_str(),
              static_cast<unsigned long long>(hash_of(x)));
}

using Function = std::function<Var(std::span<const Var>)>;

void print_all(const std::string& name, DType dtype, const Function& f, const std::vector<Shape>& shapes,
               double low = -1, double high = 1) {
  Tape tape;
  std::vector<Var> x;
  for (const Shape& shape : shapes)
    x.push_back(tape.watch(Tensor::uniform(shape, {5, x.size()}, low, high, DType::f64).to(dtype)));
  const Var y = f(x);
  print(name, dtype, "value", y.value());
  if (!y.tracked()) return;
  const Tensor seed = Tensor::uniform(y.shape(), {6}, -1, 1, DType::f64).to(y.dtype());
  const std::vector<Var> gradients = tape.gradient(y, Var(seed), x);
  for (size_t i = 0; i < gradients.size(); ++i) print(name, dtype, "gradient " + text(i + 1), gradients[i].value());
}

void print_samples(DType dtype) {
  for (const Op* op : Op::all())
    for (const Sample& sample : op->samples)
      print_all(op->name + ", " + sample.label, dtype, sample.call, sample.shapes, sample.low, sample.high);
}

void print_products(DType dtype) {
  const auto no = Transpose::no, yes = Transpose::yes;
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {5, 7, 3}, {37, 65, 129}, {130, 71, 800}, {9, 193, 385}}) {
    const std::string size = text(m) + " x " + text(n) + " x " + text(k);
    print_all("product " + size, dtype, [&](auto x) { return matmul(x[0], x[1], no, no); }, {{m, k}, {k, n}});
    print_all("product " + size + ", both transposed", dtype, [&](auto x) { return matmul(x[0], x[1], yes, yes); },
              {{k, m}, {n, k}});
    print_all("layer " + size, dtype, [&](auto x) { return linear(x[0], x[1], x[2], {.op = Unary::Tanh}); },
              {{m, k}, {k, n}, {n}});
  }
  print_all("convolution", dtype,
            [](auto x) {
              return conv2d(x[0], x[1], x[2], {.stride = {2, 1}, .padding = {1, 1}});
            },
            {{3, 13, 11, 5}, {3, 3, 5, 17}, {17}});
  print_all("convolution of many channels", dtype,
            [](auto x) {
              return conv2d(x[0], x[1], x[2], {.stride = {1, 1}, .padding = {1, 1}});
            },
            {{3, 6, 4, 64}, {3, 3, 64, 67}, {67}});
  print_all("convolution of many channels, every second pixel", dtype,
            [](auto x) {
              return conv2d(x[0], x[1], x[2], {.stride = {2, 2}, .padding = {1, 1}});
            },
            {{3, 17, 15, 64}, {3, 3, 64, 67}, {67}});
  print_all("largest of windows", dtype,
            [](auto x) {
              return max_pool2d(x[0], {3, 2}, {.stride = {2, 1}, .padding = {1, 1}});
            },
            {{3, 13, 11, 53}});
}

void print_rows(DType dtype) {
  for (const int64_t n : {1, 7, 15, 16, 31, 64, 100, 129, 1000, 5000}) {
    const auto row = [&](const char* what, const Function& f, const std::vector<Shape>& shapes) {
      print_all(std::string(what) + " of " + text(n), dtype, f, shapes);
    };
    row("softmax", [](auto x) { return softmax(x[0]); }, {{3, n}});
    row("log_softmax", [](auto x) { return log_softmax(x[0]); }, {{3, n}});
    row("log_sum_exp", [](auto x) { return log_sum_exp(x[0]); }, {{3, n}});
    row("standardize", [](auto x) { return standardize(x[0]); }, {{3, n}});
    row("layer_norm", [](auto x) { return layer_norm(x[0], x[1], x[2], 1e-5, {.op = Unary::Relu}); },
        {{37, n}, {n}, {n}});
    row("sum", [](auto x) { return sum(x[0]); }, {{3, n}});
    row("sum of rows", [](auto x) { return sum(x[0], 0); }, {{n, 3}});
    row("variance", [](auto x) { return variance(x[0], 1); }, {{3, n}});
  }
}

void print_scores(DType dtype) {
  for (const auto& [m, n, d] : {std::array<int64_t, 3>{3, 5, 2}, {131, 389, 67}, {131, 700, 130}})
    for (const double scale : {1.0, 100.0}) {
      const std::string size = " " + text(m) + " x " + text(n) + " x " + text(d) + " times " + text(scale);
      const std::vector<Shape> shapes = {{m, d}, {n, d}};
      const auto of = [&](const char* what, const Function& f) { print_all(what + size, dtype, f, shapes); };
      const Tensor factor = Tensor::full({}, scale, dtype), shift = Tensor::full({}, -0.5, dtype);
      of("log_sum_exp", [&](auto x) { return score_log_sum_exp(x[0], x[1], factor); });
      of("log_sum_exp_both", [&](auto x) { return score_log_sum_exp_both(x[0], x[1], factor); });
      of("softplus", [&](auto x) { return score_softplus_sum(x[0], x[1], factor, shift); });
    }
  const Tensor x = Tensor::normal({70, 37}, {7}, 0, 1, DType::f64).to(dtype),
               codes = Tensor::normal({1100, 37}, {8}, 0, 1, DType::f64).to(dtype);
  print("nearest codes", dtype, "indices", nearest_rows(x, codes));
}

void print_random(DType dtype) {
  print("uniform", dtype, "value", Tensor::uniform({1003}, {9}, -2, 3, dtype));
  print("normal", dtype, "value", Tensor::normal({1003}, {9}, 1, 2, dtype));
}

void print_optimizers(DType dtype) {
  const std::pair<const char*, Rule> rules[] = {{"sgd", Sgd{.momentum = 0.9}},
                                                {"adam", Adam{}},
                                                {"adamw", AdamW{}},
                                                {"lars", Lars{}},
                                                {"lamb", Lamb{}},
                                                {"muon", Muon{}},
                                                {"adafactor", Adafactor{}}};
  for (const auto& [name, rule] : rules) {
    Parameter matrix("matrix", Tensor::uniform({37, 129}, {1}, -1, 1, DType::f64).to(dtype));
    Optimizer optimizer({&matrix}, rule);
    for (uint64_t step = 0; step < 5; ++step) {
      Gradients gradients;
      gradients.add(matrix, Tensor::uniform(matrix.value.shape(), {3, step}, -1, 1, DType::f64).to(dtype));
      optimizer.step(gradients, 0.01, clip(optimizer.norm(gradients), 1));
    }
    print(name, dtype, "value", matrix.value);
  }
}

}  // namespace

int main() try {
  std::fprintf(stderr, "kernels for %s\n", chosen_cpu_kind().name);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    print_samples(dtype);
    print_products(dtype);
    print_rows(dtype);
    print_scores(dtype);
    print_random(dtype);
  }
  for (const DType dtype : {DType::f32, DType::f64}) print_optimizers(dtype);
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
