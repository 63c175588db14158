// SPDX-License-Identifier: Apache-2.0
#pragma once
// A step of a job whose reducer takes the mean: two parameters of one shape, drawn gradients of all ranks and
// micro-batches, which have different numbers of tokens and samples; and what a reducer makes of them.
#include <functional>

#include "tools/weft/verdict/verdict.h"
#include "weft/engine/tensor/tensor.h"

namespace weft::planted {

class Job {
 public:
  using Matrix = verify::Matrix;
  int ranks, passes;
  DType dtype;
  uint64_t seed;
  int64_t rows, columns;
  Matrix tokens, samples, generated;  // by rank and micro-batch

  Job(int ranks, int passes, DType dtype, uint64_t seed, int64_t rows = 12, int64_t columns = 10);

  double all(const Matrix& counts) const { return counts.sum(); }
  double own(const Matrix& counts, int rank) const { return counts.row(rank).sum(); }
  verify::Verdict verdict() const;                // of the first parameter
  std::vector<verify::Verdict> verdicts() const;  // of both

  Matrix local(int rank) const;  // of all micro-batches
  Matrix previous(int rank) const { return parameter().previous[static_cast<size_t>(rank)]; }
  const Matrix& reduced(int rank) const { return parameter().reduced[static_cast<size_t>(rank)]; }
  Matrix& reduced(int rank) { return dump_.parameters[0].reduced[static_cast<size_t>(rank)]; }

  // Mistakes. Numbers are rounded when a verdict is asked for.
  void reduce(const std::function<double(int to, int from, int pass)>& weight);  // times what it should weigh
  void rearrange(const std::function<int64_t(int64_t)>& from);                   // elements
  void silence(int64_t element);                                                 // which no rank has a gradient of
  void exchange(const std::function<bool(int rank)>& has_other);                 // with the other parameter
  // The reducer divides the gradient among ranks, as it should or otherwise. Of 15 rows and 15 columns.
  void divide(int dimension, const std::function<Matrix(const Matrix& whole, int rank)>& piece);
  void divide_before_sum(int dimension);
  Matrix slice(const Matrix& whole, int dimension, int rank, int64_t shift = 0) const;
  void use(const std::vector<double>& weights);  // two uses of the parameter
  void clip(const std::function<double(const Matrix&)>& power, const std::function<double(double)>& root);
  void send_in(DType lower);
  void accumulate_in(DType lower);
  void store_in(DType lower);
  void leave_unwritten(int64_t begin);  // elements from there on, which differ when the step is repeated
  // What is said of a norm that the job takes of all reduced gradients.
  verify::Verdict verdict_of_norm(const std::function<double(const Matrix&)>& norm) const;

 private:
  const verify::ParameterEvidence& parameter() const { return dump_.parameters[0]; }
  verify::Dump stored() const;
  Matrix drawn(uint64_t number) const;
  Matrix mean() const;
  void reshape(int64_t to_rows, int64_t to_columns);

  verify::Dump dump_;
};

}  // namespace weft::planted
