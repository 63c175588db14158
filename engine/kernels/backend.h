// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface of a device: it holds memory, and runs kernels on contiguous tensors of one dtype.
//
// The caller has checked shapes and allocated outputs, which are no inputs unless a comment says so. A backend knows no
// tape: derivatives are formulas like others. Sums have a fixed order, so the same inputs give the same bits.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/engine/kernels/addition.h"
#include "weft/engine/kernels/convolution_shape.h"
#include "weft/engine/kernels/exact_parts.h"
#include "weft/engine/kernels/indices.h"
#include "weft/engine/kernels/log_sums.h"
#include "weft/engine/kernels/nearest_code.h"
#include "weft/engine/kernels/scalar_kinds.h"
#include "weft/engine/kernels/step_graph.h"
#include "weft/engine/kernels/update_formulas.h"
#include "weft/engine/tensor/out_of_memory.h"
#include "weft/engine/tensor/pool.h"
#include "weft/engine/tensor/tensor.h"
#include "weft/engine/tensor/tensor_device.h"

namespace weft {

enum class Reduction : uint8_t { sum, product, maximum, minimum };  // maximum and minimum propagate NaN
enum class Normalizer : uint8_t { softmax, log_softmax };

// The epilogue that a product applies to its results in registers or cache: y = activation(x w + bias).
struct Activation {
  Unary op = {};             // Unary::Affine
  Scalars scalars = {1, 0};  // the identity
  bool identity() const { return op == Unary{} && scalars.a == 1 && scalars.b == 0; }
};
struct Epilogue {
  const Tensor* bias = nullptr;  // one value per column, or none
  Activation activation = {};
};

// The scores z = scale q k' + shift of every row of q with every row of k: engine/ops/scores.h. Scale and shift
// are scalars on the device. The members after `scale` may be missing.
struct Scores {
  const Tensor &q, &k, &scale;
  const Tensor* shift;
  std::optional<Indices> excluded, targets;  // columns
};
enum class ScoreSum : uint8_t { log_sum_exp, log_sum_exp_both, softplus };  // both: over rows and over columns
struct ScoreGradients {
  Tensor q, k, scale, shift;  // undefined if not needed
};

// The tensors that layer_norm_rows saves for its pullback.
struct NormedRows {
  const Tensor &x, &gamma, &moments;
  const Tensor& rectified;  // y if a relu follows, otherwise undefined
};

class Backend : public TensorDevice {
 public:
  virtual std::string description() const = 0;  // "8 threads of ...", "NVIDIA H200", ...

  // Memory, beside that of TensorDevice.
  virtual MemoryStatistics memory() const = 0;
  virtual Storage* allocate_staging(size_t bytes) = 0;  // host memory with the fastest copies to and from the device
  virtual MemoryStatistics staging_memory() const = 0;
  virtual void synchronize() = 0;  // wait for this rank's kernels
  // Starts a copy to staging memory in the order of this rank's other work. The result, called once, waits for it.
  virtual std::function<void()> start_download(void* to, const void* from, size_t bytes) = 0;

  // For backends with cards. use_card sets the card of the calling thread's new tensors and kernels, which is 0 by
  // default. `reaches` returns whether its kernels can access this memory, which they cannot if it is on another card.
  // `queue` is the queue of its kernels (a cudaStream_t), for libraries that enqueue work of their own.
  virtual void use_card(int) {}
  virtual int card() { return 0; }  // of this thread
  virtual bool reaches(const void*) { return true; }
  virtual void* queue() { return nullptr; }
  // Records an event after this thread's work so far. A thread that calls the result does its later work after that.
  virtual std::function<void()> record_event() {
    return [] {};
  }
  // What the calling thread does while it waits for its kernels, and once after that. It returns whether anything is
  // left to do, and may throw if the results are invalid.
  virtual void while_waiting(std::function<bool()>) {}
  virtual std::unique_ptr<StepGraph> make_graph() { return nullptr; }  // on this thread's card; null without cards

  // Runs f32 multiply-adds as fast as the device can, to measure its peak. Returns the number of operations, two per
  // multiply-add, or 0 if the device has no such loop.
  virtual double multiply_adds() { return 0; }

  // Allows f32 products on a card's tensor cores, with 10 bits of mantissa, for all ranks of a process. Off by default.
  virtual void allow_tf32(bool) {}

  // Elementwise: all tensors have one shape. y may be an input.
  virtual void unary(Unary op, Scalars scalars, const Tensor& x, Tensor& y) = 0;
  virtual void slope(Unary op, Scalars scalars, const Tensor& saved, const Tensor& g, Tensor& y) = 0;  // df(s) g
  virtual void curvature(Unary op, Scalars scalars, const Tensor& saved, const Tensor& g, const Tensor& h,
                         Tensor& y) = 0;  // ddf(s) g h
  virtual void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& y) = 0;
  virtual void add_all(std::span<Addition> sums) = 0;  // of arrays of any sizes; none writes what another one uses
  // v has as many values as the axis.
  virtual void binary_along(Binary op, const Tensor& a, const Tensor& v, Along along, Tensor& y) = 0;
  virtual void compare(Comparison op, const Tensor& a, const Tensor& b, Tensor& y) = 0;  // y is u8, 0 or 1
  virtual void mark_difference(const Tensor& a, const Tensor& b, Tensor& y) = 0;  // y[0] = 1, a u8, if any bit differs
  virtual void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y) = 0;
  virtual void accumulate(double scale, const Tensor& x, Tensor& y) = 0;  // y += scale x

  // Along an axis: x is outer x extent x inner, y is outer x inner unless a comment says otherwise.
  virtual void reduce(Reduction op, const Tensor& x, Along along, Tensor& y) = 0;
  // The gradient g of an extreme y is shared equally by the elements of its line that attain it.
  virtual void extreme_pullback(const Tensor& x, const Tensor& y, const Tensor& g, Along along, Tensor& dx) = 0;
  virtual void reduce_outside(const Tensor& x, Along along, Tensor& y) = 0;  // sum over outer and inner: extent values
  virtual void repeat(const Tensor& x, Along along, Tensor& y) = 0;          // the adjoint of a sum: y has the extent
  // The place of the first extreme, as i64; NaN wins.
  virtual void arg_reduce(Reduction op, const Tensor& x, Along along, Tensor& y) = 0;
  virtual void cumulative_sum(const Tensor& x, Along along, bool reverse, Tensor& y) = 0;  // y like x
  // Of equal values, the first come first.
  virtual void top_k(const Tensor& x, Along along, int64_t k, bool largest, Tensor& values, Tensor& indices) = 0;
  virtual void flip(const Tensor& x, Along along, Tensor& y) = 0;

  // Rows of length n = x's innermost extent.
  virtual void normalize_rows(Normalizer kind, const Tensor& x, Tensor& y) = 0;
  virtual void normalize_rows_pullback(Normalizer kind, const Tensor& y, const Tensor& g, Tensor& dx) = 0;
  virtual void log_sum_exp_rows(const Tensor& x, Tensor& y) = 0;
  // y = x / max(|x|, epsilon). `lengths` are |x|, f32 for bf16.
  virtual void unit_rows(double epsilon, const Tensor& x, Tensor& y, Tensor& lengths) = 0;
  virtual void unit_rows_pullback(double epsilon, const Tensor& x, const Tensor& lengths, const Tensor& g,
                                  Tensor& dx) = 0;
  virtual void standardize_rows(double epsilon, const Tensor& x, Tensor& y, Tensor& rstd) = 0;  // (x - mean) rstd
  virtual void standardize_rows_pullback(const Tensor& y, const Tensor& rstd, const Tensor& g, Tensor& dx) = 0;
  // y = gamma (x - mean) rstd + beta, then an optional relu. `moments` are the mean and rstd of each row, f32 for bf16.
  virtual void layer_norm_rows(double epsilon, bool relu, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                               Tensor& y, Tensor& moments) = 0;
  virtual void layer_norm_rows_pullback(const NormedRows& saved, const Tensor& g, Tensor& dx, Tensor& dgamma,
                                        Tensor& dbeta) = 0;
  virtual void cross_entropy_rows(const Tensor& x, const Indices& targets, Tensor& losses) = 0;  // lse(x) - x[target]
  virtual void cross_entropy_rows_pullback(const Tensor& x, const Indices& targets, const Tensor& g, Tensor& dx) = 0;

  // Linear algebra: y = op(a) op(b) for each of `batch` consecutive matrices; extents come from y and a.
  virtual void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Epilogue& epilogue,
                      Tensor& y) = 0;

  // `sums` has the sums over the scores of each row, then of each column, then the scores of targets. The scores are
  // never in memory as a whole. The sums and their cotangents g are f64.
  virtual void score_sums(ScoreSum kind, const Scores& z, Tensor& sums) = 0;
  virtual void score_gradients(ScoreSum kind, const Scores& z, const Tensor& sums, const Tensor& g,
                               ScoreGradients& to) = 0;

  virtual void gather_rows(const Tensor& x, const Indices& indices, Tensor& y) = 0;  // y[i] = x[indices[i]]
  virtual void scatter_add_rows(const Tensor& x, const Indices& indices,
                                Tensor& y) = 0;  // y = 0; y[indices[i]] += x[i]
  virtual void one_hot(const Indices& indices, Tensor& y) = 0;
  virtual void check_indices(const Indices&) {}  // reads them, for callers that compute with them otherwise
  // See engine/kernels/nearest_code.h.
  virtual void nearest_rows(const Tensor& x, const Tensor& codes, Tensor& indices) = 0;
  // Copies `count` slices of x's axis to y's; the rest of y is unchanged.
  virtual void copy_slab(const Tensor& x, Along from, int64_t from_begin, Tensor& y, Along to, int64_t to_begin,
                         int64_t count) = 0;
  // y = `before` slices of the value, then those of x, then more of the value up to y's extent.
  virtual void pad(const Tensor& x, Along along, int64_t before, double value, Tensor& y) = 0;
  virtual void permute(const Tensor& x, const Shape& order, Tensor& y) = 0;  // axis i of y is axis order[i] of x

  // Images.
  virtual void convolve(const Convolution& c, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                        Tensor& y) = 0;
  virtual void convolve_input_gradient(const Convolution& c, const Tensor& g, const Tensor& w, Tensor& dx) = 0;
  virtual void convolve_weight_gradient(const Convolution& c, const Tensor& x, const Tensor& g, Tensor& dw) = 0;
  virtual void unfold(const Convolution& c, const Tensor& x, Tensor& y) = 0;  // (B, OH, OW, KH KW, C), zeros outside
  virtual void fold(const Convolution& c, const Tensor& x, Tensor& y) = 0;    // its adjoint: sums into (B, H, W, C)
  // y: the maxima over windows, of the pixels inside. Those that attain a maximum share its cotangent g equally. The
  // tangent dy is the adjoint of this.
  virtual void max_pool(const Convolution& c, const Tensor& x, Tensor& y) = 0;
  virtual void max_pool_pullback(const Convolution& c, const Tensor& x, const Tensor& y, const Tensor& g,
                                 Tensor& dx) = 0;
  virtual void max_pool_tangent(const Convolution& c, const Tensor& x, const Tensor& y, const Tensor& dx,
                                Tensor& dy) = 0;

  // Exact sums: engine/ops/exact.h. Sums and counts are f64, and are added to.
  virtual void add_exact_parts(std::span<const ExactRun> runs, Tensor& sums) = 0;
  // The sum of the rows x[i] with index k is added to row k of the sums, their number to counts[k].
  virtual void add_exact_rows(const Tensor& x, const Indices& indices, Tensor& sums, Tensor& counts) = 0;
  virtual void exact_total(const Tensor& parts, Tensor& y) = 0;  // y is f64 or f32

  // Optimizers: engine/kernels/update_formulas.h. Values and slots are f32 or f64, gradients the same or bf16. If
  // `rounded` is defined, it gets the new values in bf16. Runs do not overlap, and their gradients have one type.
  virtual void update(UpdateRule rule, std::span<const UpdateRun> runs, Tensor& value, std::span<Tensor> slots,
                      Tensor& rounded) = 0;
  virtual void square_sums(std::span<const SquareSumsRun> runs, Tensor& sums) = 0;  // f64; other sums are unchanged
};

Backend& backend(Device device);  // Error if this build or machine has no such device
bool available(Device device);    // Error if there is a card, but its driver is too old

// Host tensors of x's shape and type, for data that pass through the host, in the memory with the fastest copies to and
// from x's device. They may be destroyed as soon as copy_from has returned.
Tensor staging_for(const Tensor& x);  // values not set
Tensor staged(const Tensor& x);       // with x's values; x itself if it is on the host

// A copy of a tensor on the host, which the tensor's device makes while this thread goes on.
class HostCopy {
 public:
  explicit HostCopy(const Tensor& x);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  const Tensor& values();  // waits for the copy

 private:
  Tensor host_;
  std::function<void()> arrive_;  // undefined once it has been called
};

// The factories of the backends. A build without CUDA links one that returns nothing.
std::unique_ptr<Backend> make_cpu_backend();
std::unique_ptr<Backend> make_cuda_backend();

}  // namespace weft
