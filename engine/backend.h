#pragma once
// What a device must be able to do: hold memory, and run kernels on contiguous tensors of one dtype.
//
// Shapes are already checked, outputs already allocated and never aliased with inputs unless a comment says so.
// Backends hold no op semantics and no gradients; sums run in a fixed order, so the same inputs give the same bits.
#include <memory>
#include <string>

#include "engine/convolution.h"
#include "engine/exact.h"
#include "engine/log_sums.h"
#include "engine/nearest.h"
#include "engine/out_of_memory.h"
#include "engine/pool.h"
#include "engine/scalar_ops.h"
#include "engine/tensor.h"
#include "engine/update.h"

namespace weft {

enum class Reduction : uint8_t { sum, product, maximum, minimum };  // maximum and minimum pass NaN on
enum class Normalizer : uint8_t { softmax, log_softmax };

// What a matmul does to its finished values while they are still near: y = activation(x w + bias).
struct Activation {
  Unary op = Unary::Affine;
  Scalars scalars = {1, 0};  // the identity
  bool identity() const { return op == Unary::Affine && scalars.a == 1 && scalars.b == 0; }
};
struct Epilogue {
  const Tensor* bias = nullptr;  // one value per column, or none
  Activation activation = {};
};

// Scores z = scale q k' + shift of every row of q with every row of k: engine/ops/scores.h. Scale and shift are scalars
// on the device; what comes after them may be null.
struct Scores {
  const Tensor &q, &k, &scale;
  const Tensor *shift, *excluded, *targets;
};
enum class ScoreSum : uint8_t { log_sum_exp, log_sum_exp_both, softplus };  // over rows; both: and over columns
struct ScoreGradients {
  Tensor q, k, scale, shift;  // undefined: not wanted
};

// Rows after layer_norm_rows, for its pullback.
struct NormedRows {
  const Tensor &x, &gamma, &moments;
  const Tensor& rectified;  // y after a relu, undefined where there was none
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string description() const = 0;  // "8 threads of ...", "NVIDIA H200", ...

  // Memory. copy, upload and download are complete, in the order of this rank's other work, when they return a value.
  virtual Storage* allocate(size_t bytes) = 0;
  virtual MemoryStatistics memory() const = 0;
  virtual Storage* allocate_staging(size_t bytes) = 0;  // host memory from where and to where copies are fastest
  virtual MemoryStatistics staging_memory() const = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;      // within the device, or from another card
  virtual void upload(void* to, const void* from, size_t bytes) = 0;    // from the host
  virtual void download(void* to, const void* from, size_t bytes) = 0;  // to the host
  virtual void synchronize() = 0;                                       // wait for this rank's kernels

  // Where there are cards: the one that the calling thread's new tensors and kernels go to from now on, 0 unless said
  // otherwise; whether kernels there reach this memory, which they do not if it is another card's; and, for libraries
  // that put work of their own between them, the queue they are in (a cudaStream_t).
  virtual void use_card(int) {}
  virtual bool reaches(const void*) { return true; }
  virtual void* queue() { return nullptr; }

  // Does f32 multiply-adds as fast as the device can, so that its peak can be measured. Returns how many operations
  // these were, two for each of them, or 0 if the device has no such loop.
  virtual double multiply_adds() { return 0; }

  // f32 products on a card's tensor cores, with 10 bits of mantissa: off unless asked for, for all ranks of a process.
  virtual void allow_tf32(bool) {}

  // Elementwise: all tensors have one shape. y may be an input.
  virtual void fill(double value, Tensor& y) = 0;
  virtual void cast(const Tensor& x, Tensor& y) = 0;
  virtual void unary(Unary op, Scalars scalars, const Tensor& x, Tensor& y) = 0;
  virtual void slope(Unary op, Scalars scalars, const Tensor& saved, const Tensor& g, Tensor& y) = 0;  // df(s) g
  virtual void curvature(Unary op, Scalars scalars, const Tensor& saved, const Tensor& g, const Tensor& h,
                         Tensor& y) = 0;  // ddf(s) g h
  virtual void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& y) = 0;
  virtual void binary_along(Binary op, const Tensor& a, const Tensor& v, Along along,
                            Tensor& y) = 0;                                              // v has extent values
  virtual void compare(Comparison op, const Tensor& a, const Tensor& b, Tensor& y) = 0;  // y is u8, 0 or 1
  virtual void mark_difference(const Tensor& a, const Tensor& b, Tensor& y) = 0;  // y[0] = 1, a u8, if any bit differs
  virtual void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y) = 0;
  virtual void accumulate(double scale, const Tensor& x, Tensor& y) = 0;  // y += scale x

  // Along an axis: x is outer x extent x inner, y is outer x inner unless said otherwise.
  virtual void reduce(Reduction op, const Tensor& x, Along along, Tensor& y) = 0;
  virtual void reduce_outside(const Tensor& x, Along along, Tensor& y) = 0;  // sum over outer and inner: extent values
  virtual void repeat(const Tensor& x, Along along, Tensor& y) = 0;          // the adjoint of a sum: y has the extent
  virtual void arg_reduce(Reduction op, const Tensor& x, Along along,
                          Tensor& y) = 0;  // first extreme, as i64; NaN wins
  virtual void cumulative_sum(const Tensor& x, Along along, bool reverse, Tensor& y) = 0;  // y like x
  virtual void top_k(const Tensor& x, Along along, int64_t k, bool largest, Tensor& values,
                     Tensor& indices) = 0;  // stable
  virtual void flip(const Tensor& x, Along along, Tensor& y) = 0;

  // Rows of length n = x's innermost extent.
  virtual void normalize_rows(Normalizer kind, const Tensor& x, Tensor& y) = 0;
  virtual void normalize_rows_pullback(Normalizer kind, const Tensor& y, const Tensor& g, Tensor& dx) = 0;
  virtual void log_sum_exp_rows(const Tensor& x, Tensor& y) = 0;
  virtual void standardize_rows(double epsilon, const Tensor& x, Tensor& y, Tensor& rstd) = 0;  // (x - mean) rstd
  virtual void standardize_rows_pullback(const Tensor& y, const Tensor& rstd, const Tensor& g, Tensor& dx) = 0;
  // y = gamma (x - mean) rstd + beta, then relu if asked for. `moments` are mean and rstd by row, f32 for bf16.
  virtual void layer_norm_rows(double epsilon, bool relu, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                               Tensor& y, Tensor& moments) = 0;
  virtual void layer_norm_rows_pullback(const NormedRows& saved, const Tensor& g, Tensor& dx, Tensor& dgamma,
                                        Tensor& dbeta) = 0;
  virtual void cross_entropy_rows(const Tensor& x, const Tensor& targets, Tensor& losses) = 0;  // lse(x) - x[target]
  virtual void cross_entropy_rows_pullback(const Tensor& x, const Tensor& targets, const Tensor& g, Tensor& dx) = 0;

  // Linear algebra: y = op(a) op(b) for each of `batch` consecutive matrices; extents come from y and a.
  virtual void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Epilogue& epilogue,
                      Tensor& y) = 0;

  // Sums over scores, which are never in memory all at once, of rows, then of columns, then the scores of targets. They
  // are f64, and so are g, their cotangents.
  virtual void score_sums(ScoreSum kind, const Scores& z, Tensor& sums) = 0;
  virtual void score_gradients(ScoreSum kind, const Scores& z, const Tensor& sums, const Tensor& g,
                               ScoreGradients& to) = 0;

  // Indices are i64 and already checked.
  virtual void gather_rows(const Tensor& x, const Tensor& indices, Tensor& y) = 0;       // y[i] = x[indices[i]]
  virtual void scatter_add_rows(const Tensor& x, const Tensor& indices, Tensor& y) = 0;  // y = 0; y[indices[i]] += x[i]
  virtual void one_hot(const Tensor& indices, Tensor& y) = 0;
  virtual void nearest_rows(const Tensor& x, const Tensor& codes, Tensor& indices) = 0;  // engine/nearest.h
  virtual void copy_slab(const Tensor& x, Along from, int64_t from_begin, Tensor& y, Along to, int64_t to_begin,
                         int64_t count) = 0;  // `count` slices of x's axis into y's; the rest of y is left alone
  virtual void permute(const Tensor& x, const Shape& order, Tensor& y) = 0;  // axis i of y is axis order[i] of x

  // Images.
  virtual void convolve(const Convolution& c, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                        Tensor& y) = 0;
  virtual void convolve_input_gradient(const Convolution& c, const Tensor& g, const Tensor& w, Tensor& dx) = 0;
  virtual void convolve_weight_gradient(const Convolution& c, const Tensor& x, const Tensor& g, Tensor& dw) = 0;
  virtual void unfold(const Convolution& c, const Tensor& x, Tensor& y) = 0;  // (B, OH, OW, KH KW, C), zeros outside
  virtual void fold(const Convolution& c, const Tensor& x, Tensor& y) = 0;    // its adjoint: sums into (B, H, W, C)

  virtual void add_exact_parts(const Tensor& x, Tensor& sums) = 0;  // engine/exact.h

  // Optimizers: engine/update.h. Values and slots are f32 or f64, gradients the same or bf16. `rounded`, if it is
  // defined, gets the new values in bf16. Runs do not overlap and have gradients of one type.
  virtual void update(UpdateRule rule, std::span<const UpdateRun> runs, Tensor& value, std::span<Tensor> slots,
                      Tensor& rounded) = 0;
  virtual void square_sums(std::span<const SquareSumsRun> runs, Tensor& sums) = 0;  // f64; other sums are left alone

  // Random: element i takes draw i.
  virtual void uniform(Random random, double low, double high, Tensor& y) = 0;
  virtual void normal(Random random, double mean, double deviation, Tensor& y) = 0;
};

Backend& backend(Device device);  // Error if this build or machine has no such device
bool available(Device device);

// What travels through the host does so here: a host tensor of x's shape and type, in memory that x's device reaches
// fastest. Filled, it may be dropped as soon as copy_from has returned.
Tensor staging_for(const Tensor& x);  // values not set
Tensor staged(const Tensor& x);       // with x's values; x itself if it is on the host

// Each backend's factory; the build links the real CUDA one or its absent twin, which returns nothing.
std::unique_ptr<Backend> make_cpu_backend();
std::unique_ptr<Backend> make_cuda_backend();

}  // namespace weft
