// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/planted_reduction.h"

#include <algorithm>

namespace weft::planted {

using verify::Matrix;

namespace {

Matrix rounded_in(DType dtype, const Matrix& x) {
  Tensor all(Shape{x.size()}, DType::f64);
  std::copy(x.data(), x.data() + x.size(), all.mutate<double>());
  const Tensor rounded = all.to(dtype).to(DType::f64);
  return Eigen::Map<const Matrix>(rounded.data<double>(), x.rows(), x.cols());
}

}  // namespace

Job::Job(int ranks, int passes, DType dtype, uint64_t seed, int64_t rows, int64_t columns)
    : ranks(ranks), passes(passes), dtype(dtype), seed(seed), tokens(ranks, passes), samples(ranks, passes) {
  for (int r = 0; r < ranks; ++r)
    for (int k = 0; k < passes; ++k) {
      tokens(r, k) = static_cast<double>(100 + (37 * r + 59 * k + 11 * r * k + 13 * static_cast<int>(seed % 7)) % 173);
      samples(r, k) = 2 + (3 * r + 5 * k * k + static_cast<int>(seed)) % 7;
    }
  generated = tokens.array() * 2 + 31;
  dump_.ranks = ranks;
  dump_.micro_batches = passes;
  const Matrix local_world = Matrix::Constant(1, 1, 2);
  dump_.counts = {
      {"tokens", tokens}, {"samples", samples}, {"generated tokens", generated}, {"local world", local_world}};
  dump_.parameters.resize(2);
  reshape(rows, columns);
}

void Job::reshape(int64_t to_rows, int64_t to_columns) {
  rows = to_rows, columns = to_columns;
  for (size_t i = 0; i < 2; ++i) {
    verify::ParameterEvidence& p = dump_.parameters[i];
    p.name = i == 0 ? "weight" : "other";
    p.precision = dtype == DType::bf16 ? verify::Precision{"bf16", 0x1p-8} : verify::Precision{"f32", 0x1p-23};
    p.local.assign(static_cast<size_t>(ranks), {});
    p.local_shapes.assign(static_cast<size_t>(ranks), Shape{rows, columns});
    p.reduced_shapes = p.local_shapes;
    for (int r = 0; r < ranks; ++r)
      for (int k = 0; k < passes; ++k)
        p.local[static_cast<size_t>(r)].push_back(
            rounded_in(dtype, (1 + 0.3 * r) * drawn(i * 1000 + static_cast<uint64_t>(r * passes + k))));
    p.previous.assign(static_cast<size_t>(ranks), rounded_in(dtype, drawn(i * 1000 + 999)));
  }
  reduce([](int, int, int) { return 1; });
}

Matrix Job::drawn(uint64_t number) const {
  const Tensor x = Tensor::uniform({rows * columns}, Random{seed, number}, -1, 1, DType::f64);
  return Eigen::Map<const Matrix>(x.data<double>(), 1, rows * columns);
}

verify::Dump Job::stored() const {
  verify::Dump dump = dump_;
  for (verify::ParameterEvidence& p : dump.parameters)
    for (Matrix& each : p.reduced) each = rounded_in(dtype, each);
  return dump;
}
std::vector<verify::Verdict> Job::verdicts() const { return verify::verdicts(stored()); }
verify::Verdict Job::verdict() const {
  const verify::Dump dump = stored();
  return verify::verdict(dump.parameters[0], dump);
}

Matrix Job::local(int rank) const {
  Matrix sum = Matrix::Zero(1, rows * columns);
  for (const Matrix& each : parameter().local[static_cast<size_t>(rank)]) sum += each;
  return sum;
}
Matrix Job::mean() const {
  Matrix sum = Matrix::Zero(1, rows * columns);
  for (int r = 0; r < ranks; ++r) sum += local(r) / ranks;
  return sum;
}

void Job::reduce(const std::function<double(int, int, int)>& weight) {
  for (verify::ParameterEvidence& p : dump_.parameters) {
    p.reduced.assign(static_cast<size_t>(ranks), Matrix::Zero(1, rows * columns));
    for (int q = 0; q < ranks; ++q)
      for (int r = 0; r < ranks; ++r)
        for (int k = 0; k < passes; ++k)
          p.reduced[static_cast<size_t>(q)] +=
              weight(q, r, k) / ranks * p.local[static_cast<size_t>(r)][static_cast<size_t>(k)];
  }
}

void Job::rearrange(const std::function<int64_t(int64_t)>& from) {
  for (Matrix& each : dump_.parameters[0].reduced) {
    const Matrix right = each;
    for (int64_t i = 0; i < each.size(); ++i) each(i) = right(from(i));
  }
}

void Job::silence(int64_t element) {
  for (auto& of_rank : dump_.parameters[0].local)
    for (Matrix& each : of_rank) each(element) = 0;
  reduce([](int, int, int) { return 1; });
}

void Job::exchange(const std::function<bool(int)>& has_other) {
  Matrix sum = Matrix::Zero(1, rows * columns);
  for (int r = 0; r < ranks; ++r)
    for (const Matrix& each : dump_.parameters[has_other(r) ? 1 : 0].local[static_cast<size_t>(r)]) sum += each / ranks;
  std::ranges::fill(dump_.parameters[0].reduced, sum);
}

void Job::divide(int dimension, const std::function<Matrix(const Matrix&, int)>& piece) {
  reshape(15, 15);
  dump_.parameters.resize(1);
  verify::ParameterEvidence& p = dump_.parameters[0];
  p.layout = verify::plain_layout(verify::mesh_of(dump_), verify::Reducer::mean);
  p.layout->reduced[0] = verify::placement_named("Shard(" + std::to_string(dimension) + ")");
  p.previous.clear();
  const Matrix whole = mean();
  for (int r = 0; r < ranks; ++r) {
    p.reduced[static_cast<size_t>(r)] = piece(whole, r);
    p.reduced_shapes[static_cast<size_t>(r)] = dimension == 0 ? Shape{15 / ranks, 15} : Shape{15, 15 / ranks};
  }
}
void Job::divide_before_sum(int dimension) {
  divide(dimension, [&](const Matrix&, int) {
    Matrix sum = Matrix::Zero(1, 225 / ranks);
    for (int r = 0; r < ranks; ++r) sum += slice(local(r), dimension, r) / ranks;
    return sum;
  });
}
Matrix Job::slice(const Matrix& whole, int dimension, int rank, int64_t shift) const {
  const Matrix table = whole.reshaped<Eigen::RowMajor>(rows, columns);
  const int64_t extent = (dimension == 0 ? rows : columns), length = extent / ranks;
  Matrix piece(dimension == 0 ? length : rows, dimension == 0 ? columns : length);
  for (int64_t i = 0; i < length; ++i) {
    const int64_t from = std::clamp<int64_t>(rank * length + i + shift, 0, extent - 1);
    if (dimension == 0)
      piece.row(i) = table.row(from);
    else
      piece.col(i) = table.col(from);
  }
  return piece.reshaped<Eigen::RowMajor>(1, piece.size());
}

void Job::use(const std::vector<double>& weights) {
  verify::ParameterEvidence& p = dump_.parameters[0];
  p.uses = {{"embedding", p.local}, {"head", dump_.parameters[1].local}};
  Matrix made = Matrix::Zero(1, rows * columns);
  for (size_t r = 0; r < p.local.size(); ++r)
    for (size_t k = 0; k < p.local[r].size(); ++k) {
      made += weights[0] / ranks * p.uses.at("embedding")[r][k] + weights[1] / ranks * p.uses.at("head")[r][k];
      p.local[r][k] += p.uses.at("head")[r][k];
    }
  std::ranges::fill(p.reduced, made);
  dump_.parameters.resize(1);
}

void Job::clip(const std::function<double(const Matrix&)>& power, const std::function<double(double)>& root) {
  std::vector<double> lengths;
  for (int r = 0; r < ranks; ++r) {
    double powers = 0;
    for (const verify::ParameterEvidence& p : dump_.parameters) {
      Matrix sum = Matrix::Zero(1, rows * columns);
      for (const Matrix& each : p.local[static_cast<size_t>(r)]) sum += each;
      powers += power(sum);
    }
    lengths.push_back(root(powers));
  }
  std::vector<double> sorted = lengths;
  std::ranges::sort(sorted);
  const double most = sorted[sorted.size() - 2] * 0.97;  // two ranks are longer, at least
  reduce([&](int, int r, int) { return std::min(1.0, most / lengths[static_cast<size_t>(r)]); });
}

void Job::send_in(DType lower) {
  Matrix sum = Matrix::Zero(1, rows * columns);
  for (int r = 0; r < ranks; ++r) sum += rounded_in(lower, local(r)) / ranks;
  std::ranges::fill(dump_.parameters[0].reduced, sum);
}
void Job::accumulate_in(DType lower) {
  Matrix sum = Matrix::Zero(1, rows * columns);
  for (const auto& of_rank : parameter().local) {
    Matrix own = Matrix::Zero(1, rows * columns);
    for (const Matrix& each : of_rank) own = rounded_in(lower, own + each);
    sum += own / ranks;
  }
  std::ranges::fill(dump_.parameters[0].reduced, sum);
}
void Job::store_in(DType lower) {
  for (Matrix& each : dump_.parameters[0].reduced) each = rounded_in(lower, rounded_in(dtype, each));
}

void Job::leave_unwritten(int64_t begin) {
  verify::ParameterEvidence& p = dump_.parameters[0];
  p.again = p.reduced;
  for (int r = 0; r < ranks; ++r) {
    reduced(r).rightCols(rows * columns - begin).setConstant(1e30 + r);
    p.again[static_cast<size_t>(r)].rightCols(rows * columns - begin).setConstant(-2e28);
  }
}

verify::Verdict Job::verdict_of_norm(const std::function<double(const Matrix&)>& norm) const {
  verify::Dump dump = stored();
  Matrix all(1, 2 * rows * columns);
  all << dump.parameters[0].reduced[0], dump.parameters[1].reduced[0];
  dump.norm = {std::vector<double>(static_cast<size_t>(ranks), static_cast<float>(norm(all))), {"f32", 0x1p-23}};
  return verify::verdict(*dump.norm, dump);
}

}  // namespace weft::planted
