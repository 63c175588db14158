// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/scale_evidence.h"

#include <bit>
#include <cmath>

#include "tools/weft/dump/evidence.h"
#include "tools/weft/dump/matrix_of.h"

namespace weft::verify {
namespace {

constexpr Eigen::Index min_directions = 3;  // along a single direction every gradient is a multiple of every other
constexpr Eigen::Index steps = 4;           // -e, -e/2, e/2, e

// The bits between the first and the last one of a number that are not zero: at most 24 if it was computed in f32.
int digits(double x) {
  if (x == 0) return 0;
  int exponent = 0;
  const auto mantissa = static_cast<uint64_t>(std::ldexp(std::frexp(std::abs(x), &exponent), 53));
  return 53 - std::countr_zero(mantissa);
}

// Values that are stored in f64 may have been computed in less.
double precision_of(const std::vector<MovedValues>& all) {
  int longest = 1;
  for (const MovedValues& values : all) {
    longest = std::max(longest, digits(values.at_rest));
    for (const double x : values.moved.reshaped()) longest = std::max(longest, digits(x));
  }
  return std::ldexp(1, 1 - longest);
}

// Eigen expects both to be of one shape.
bool same_matrix(const Matrix& a, const Matrix& b) { return a.rows() == b.rows() && a.cols() == b.cols() && a == b; }

bool parallel(const Matrix& directions) {
  for (Eigen::Index k = 1; k < directions.rows(); ++k) {
    const double cosine = directions.row(0).normalized().dot(directions.row(k).normalized());
    if (std::abs(cosine) < 1 - 1e-9) return false;
  }
  return true;
}

MovedValues sum_of_terms(const std::map<std::string, MovedValues>& terms) {
  MovedValues sum = terms.begin()->second;
  for (auto each = std::next(terms.begin()); each != terms.end(); ++each) {
    sum.at_rest += each->second.at_rest;
    sum.moved += each->second.moved;
  }
  return sum;
}

}  // namespace

ScaleReader::ScaleReader(double step, std::vector<std::string> files, Detached detached)
    : files_(std::move(files)), losses_(files_.size()) {
  evidence_.step = step;
  evidence_.detached = std::move(detached);
}

bool ScaleReader::reads(Role::Kind kind) {
  return kind == Role::Kind::direction || kind == Role::Kind::objective || kind == Role::Kind::rank_loss;
}

void ScaleReader::place(const Role& role, const Tensor& tensor, size_t rank) {
  if (role.kind == Role::Kind::objective)
    return place_values(role.use.empty() ? objective_ : terms_[role.use], role, tensor, rank);
  if (role.kind == Role::Kind::rank_loss) return place_values(losses_[rank], role, tensor, rank);
  require(tensor.shape().rank() > 0 && tensor.size() > 0, files_[rank], ": the directions of '", role.of,
          "' are empty");
  const int64_t count = tensor.shape()[0];
  const Matrix directions = matrix_of(tensor.reshape({count, tensor.size() / count}));
  const auto [place, added] = directions_.emplace(role.of, directions);
  require(added || same_matrix(place->second, directions), files_[rank], ": the directions of '", role.of,
          "' are not those of an earlier rank");
  if (added) check_directions(files_[rank] + ": '" + role.of + "'", directions);
}

void ScaleReader::check_directions(const std::string& name, const Matrix& directions) const {
  require(directions.rows() >= min_directions, name, " was moved along ", directions.rows(),
          " directions, but at least ", min_directions,
          " are needed: along a single one every wrong gradient is a multiple of the right one");
  require(directions.allFinite() && (directions.rowwise().norm().array() > 0).all(), name,
          " has a direction that is zero or not finite");
  require(directions.cols() == 1 || !parallel(directions), name, " was moved along parallel directions");
}

void ScaleReader::place_values(Values& values, const Role& role, const Tensor& tensor, size_t rank) {
  const std::string name = role.kind == Role::Kind::objective ? "objective" : "rank_loss";
  const Matrix read = matrix_of(tensor);
  require(read.allFinite(), files_[rank], ": '", name, "' of '", role.of, "' has numbers that are not finite");
  const auto differs = [&] {
    fail({files_[rank], ": '", name, "' is not that of an earlier rank: the replicas have diverged (S26)"});
  };
  if (role.of.empty()) {
    require(read.size() == 1, files_[rank], ": '", name, "' is one number, not ", tensor.shape());
    if (values.at_rest.value_or(read(0, 0)) != read(0, 0)) differs();
    values.at_rest = read(0, 0);
    return;
  }
  require(tensor.shape().rank() == 2 && read.cols() == steps, files_[rank], ": '", name, "' of '", role.of, "' is ",
          tensor.shape(), ", but has one row for each direction, of values at -e, -e/2, e/2 and e");
  const auto [place, added] = values.moved.emplace(role.of, read);
  if (!added && !same_matrix(place->second, read)) differs();
}

MovedValues ScaleReader::values_of(const Values& values, const std::string& parameter, size_t rank) const {
  const auto moved = values.moved.find(parameter);
  require(values.at_rest && moved != values.moved.end(), files_[rank], ": the loss of this rank is missing ",
          values.at_rest ? "where '" + parameter + "' is moved" : "where nothing is moved");
  const Eigen::Index expected = directions_.at(parameter).rows();
  require(moved->second.rows() == expected, files_[rank], ": '", parameter, "' was moved along ", expected,
          " directions, but there are values of ", moved->second.rows());
  return {*values.at_rest, moved->second};
}

void ScaleReader::check_terms() const {
  double sum = 0, size = 0;
  for (const auto& [name, values] : terms_) {
    require(values.at_rest.has_value(), files_[0], ": there is no 'objective@", name, "', where nothing is moved");
    sum += *values.at_rest;
    size += std::abs(*values.at_rest);
  }
  constexpr double half_of_the_digits_of_f32 = 3e-4;
  require(
      terms_.empty() || !objective_.at_rest || std::abs(sum - *objective_.at_rest) <= half_of_the_digits_of_f32 * size,
      files_[0], ": the terms of the objective add up to ", sum, ", not to ", objective_.at_rest.value_or(0));
}

ScaleEvidence ScaleReader::finish(const std::vector<ParameterEvidence>& parameters) {
  require(!directions_.empty(), files_[0], ": there are no directions, though the manifest has a section \"scale\"");
  const bool have_objective = objective_.at_rest || !objective_.moved.empty();
  const bool have_losses = std::ranges::any_of(losses_, [](const Values& values) { return !values.moved.empty(); });
  require(have_objective || have_losses || !terms_.empty(), files_[0],
          ": there is neither an objective nor a loss of any rank");
  check_terms();
  std::vector<MovedValues> all;
  for (const auto& [name, directions] : directions_) {
    const auto found = std::ranges::find(parameters, name, &ParameterEvidence::name);
    MovedParameter p{name, directions, {}, {}, {}, {}, 0};
    for (size_t r = 0; r < files_.size(); ++r) {
      if (have_losses) all.push_back(p.losses.emplace_back(values_of(losses_[r], name, r)));
      require(found != parameters.end() && found->reduced[r].size() > 0, files_[r], ": there is no 'reduced/", name,
              "'");
      require(found->reduced[r].size() == directions.cols(), files_[r], ": the gradient of '", name, "' has ",
              found->reduced[r].size(), " elements, its directions ", directions.cols());
      p.gradients.push_back(found->reduced[r]);
    }
    if (have_objective) all.push_back(p.objective.emplace(values_of(objective_, name, 0)));
    for (const auto& [term, values] : terms_) all.push_back(p.terms[term] = values_of(values, name, 0));
    if (!have_objective && !terms_.empty()) p.objective = sum_of_terms(p.terms);  // has more digits than were computed
    p.epsilon = found->precision.epsilon;
    evidence_.parameters.push_back(std::move(p));
  }
  evidence_.epsilon = precision_of(all);
  return std::move(evidence_);
}

}  // namespace weft::verify
