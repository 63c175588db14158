// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every Backend verb on an NVIDIA card. Only these wait for the device: download, what start_download returns,
// synchronize, and an upload whose staging memory is in use or whose source is pinned.
//
// Each thread has a stream of its own. Before a thread reads memory that another thread writes, that thread must have
// synchronized, or the reader must have called what that thread's record_event returned. Before that thread overwrites
// the memory, the reader must have synchronized, or have freed it.
#include <atomic>

#include "weft/engine/kernels/backend.h"

namespace weft {

class CudaBackend final : public Backend {
 public:
  std::string description() const override;
  Storage* allocate(size_t bytes) override;
  MemoryStatistics memory() const override;
  Storage* allocate_staging(size_t bytes) override;
  MemoryStatistics staging_memory() const override;
  void copy(void* to, const void* from, size_t bytes) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;
  void synchronize() override;
  std::function<void()> start_download(void* to, const void* from, size_t bytes) override;
  void use_card(int index) override;
  int card() override;
  bool reaches(const void* memory) override;
  void* queue() override;
  std::function<void()> record_event() override;
  void while_waiting(std::function<bool()> go_on) override;
  std::unique_ptr<StepGraph> make_graph() override;
  void allow_tf32(bool allow) override { tf32_ = allow; }

  void fill(double value, Tensor& y) override;
  void cast(const Tensor& x, Tensor& y) override;
  void unary(Unary op, Scalars scalars, const Tensor& x, Tensor& y) override;
  void slope(Unary op, Scalars scalars, const Tensor& saved, const Tensor& g, Tensor& y) override;
  void curvature(Unary op, Scalars scalars, const Tensor& saved, const Tensor& g, const Tensor& h, Tensor& y) override;
  void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& y) override;
  void binary_along(Binary op, const Tensor& a, const Tensor& v, Along along, Tensor& y) override;
  void compare(Comparison op, const Tensor& a, const Tensor& b, Tensor& y) override;
  void mark_difference(const Tensor& a, const Tensor& b, Tensor& y) override;
  void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y) override;
  void add_all(std::span<Addition> sums) override;
  void accumulate(double scale, const Tensor& x, Tensor& y) override;

  void reduce(Reduction op, const Tensor& x, Along along, Tensor& y) override;
  void extreme_pullback(const Tensor& x, const Tensor& y, const Tensor& g, Along along, Tensor& dx) override;
  void reduce_outside(const Tensor& x, Along along, Tensor& y) override;
  void repeat(const Tensor& x, Along along, Tensor& y) override;
  void arg_reduce(Reduction op, const Tensor& x, Along along, Tensor& y) override;
  void cumulative_sum(const Tensor& x, Along along, bool reverse, Tensor& y) override;
  void top_k(const Tensor& x, Along along, int64_t k, bool largest, Tensor& values, Tensor& indices) override;
  void flip(const Tensor& x, Along along, Tensor& y) override;

  void normalize_rows(Normalizer kind, const Tensor& x, Tensor& y) override;
  void normalize_rows_pullback(Normalizer kind, const Tensor& y, const Tensor& g, Tensor& dx) override;
  void log_sum_exp_rows(const Tensor& x, Tensor& y) override;
  void unit_rows(double epsilon, const Tensor& x, Tensor& y, Tensor& lengths) override;
  void unit_rows_pullback(double epsilon, const Tensor& x, const Tensor& lengths, const Tensor& g, Tensor& dx) override;
  void standardize_rows(double epsilon, const Tensor& x, Tensor& y, Tensor& rstd) override;
  void standardize_rows_pullback(const Tensor& y, const Tensor& rstd, const Tensor& g, Tensor& dx) override;
  void layer_norm_rows(double epsilon, bool relu, const Tensor& x, const Tensor& gamma, const Tensor& beta, Tensor& y,
                       Tensor& moments) override;
  void layer_norm_rows_pullback(const NormedRows& saved, const Tensor& g, Tensor& dx, Tensor& dgamma,
                                Tensor& dbeta) override;
  void cross_entropy_rows(const Tensor& x, const Indices& targets, Tensor& losses) override;
  void cross_entropy_rows_pullback(const Tensor& x, const Indices& targets, const Tensor& g, Tensor& dx) override;

  void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Epilogue& epilogue,
              Tensor& y) override;

  void score_sums(ScoreSum kind, const Scores& z, Tensor& sums) override;
  void score_gradients(ScoreSum kind, const Scores& z, const Tensor& sums, const Tensor& g,
                       ScoreGradients& to) override;

  void gather_rows(const Tensor& x, const Indices& indices, Tensor& y) override;
  void scatter_add_rows(const Tensor& x, const Indices& indices, Tensor& y) override;
  void one_hot(const Indices& indices, Tensor& y) override;
  void check_indices(const Indices& indices) override;
  void nearest_rows(const Tensor& x, const Tensor& codes, Tensor& indices) override;
  void copy_slab(const Tensor& x, Along from, int64_t from_begin, Tensor& y, Along to, int64_t to_begin,
                 int64_t count) override;
  void pad(const Tensor& x, Along along, int64_t before, double value, Tensor& y) override;
  void permute(const Tensor& x, const Shape& order, Tensor& y) override;

  void convolve(const Convolution& c, const Tensor& x, const Tensor& w, const Epilogue& epilogue, Tensor& y) override;
  void convolve_input_gradient(const Convolution& c, const Tensor& g, const Tensor& w, Tensor& dx) override;
  void convolve_weight_gradient(const Convolution& c, const Tensor& x, const Tensor& g, Tensor& dw) override;
  void unfold(const Convolution& c, const Tensor& x, Tensor& y) override;
  void fold(const Convolution& c, const Tensor& x, Tensor& y) override;
  void max_pool(const Convolution& c, const Tensor& x, Tensor& y) override;
  void max_pool_pullback(const Convolution& c, const Tensor& x, const Tensor& y, const Tensor& g, Tensor& dx) override;
  void max_pool_tangent(const Convolution& c, const Tensor& x, const Tensor& y, const Tensor& dx, Tensor& dy) override;

  void update(UpdateRule rule, std::span<const UpdateRun> runs, Tensor& value, std::span<Tensor> slots,
              Tensor& rounded) override;
  void square_sums(std::span<const SquareSumsRun> runs, Tensor& sums) override;
  void add_exact_parts(std::span<const ExactRun> runs, Tensor& sums) override;
  void add_exact_rows(const Tensor& x, const Indices& indices, Tensor& sums, Tensor& counts) override;
  void exact_total(const Tensor& parts, Tensor& y) override;

  void uniform(Random random, double low, double high, Tensor& y) override;
  void normal(Random random, double mean, double deviation, Tensor& y) override;

 private:
  void finish(const Epilogue& epilogue, int64_t columns, Tensor& y);  // y = activation(y + bias), in place

  std::atomic<bool> tf32_ = false;
};

}  // namespace weft
