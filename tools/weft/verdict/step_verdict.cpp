// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/step_verdict.h"

#include <algorithm>
#include <set>

#include "tools/weft/dump/loading.h"

namespace weft::verify {
namespace {

using Sizes = std::vector<std::pair<int64_t, std::string>>;  // of parameters, from the smallest

Sizes wrong_sizes(const std::vector<StepRow>& rows) {
  std::set<std::pair<int64_t, std::string>> wrong;
  for (const StepRow& each : rows)
    if (each.wrong()) wrong.emplace(each.elements, each.parameter);
  return {wrong.begin(), wrong.end()};
}

// Evenly spread elements are enough to tell mistakes of the reducer apart, and take little memory.
Matrix some_of(const Matrix& all) {
  constexpr Eigen::Index most = 1 << 14;
  const Eigen::Index step = (all.size() + most - 1) / most;
  return step <= 1 ? all : Matrix(all(Eigen::all, Eigen::seq(0, Eigen::last, step)));
}

std::set<std::string> blind_in(const ParameterEvidence& given, int ranks) {
  Dump dump;
  dump.ranks = ranks;
  ParameterEvidence parameter;
  parameter.name = given.name;
  parameter.precision = given.precision;
  for (const std::vector<Matrix>& of_rank : given.local) {
    Matrix sum = some_of(of_rank[0]);
    for (size_t k = 1; k < of_rank.size(); ++k) sum += some_of(of_rank[k]);
    parameter.local.push_back({sum});
  }
  Matrix mean = parameter.local[0][0];
  for (size_t r = 1; r < parameter.local.size(); ++r) mean += parameter.local[r][0];
  parameter.reduced.assign(parameter.local.size(), mean / ranks);
  const Verdict found = verdict(parameter, dump);
  return {found.blind_to.begin(), found.blind_to.end()};
}

StepParameter loaded_for_step(const StoredParameter& stored) {
  const ParameterEvidence given = loaded(stored);
  StepParameter parameter{.name = given.name, .local = given.local, .precision = stored.truth->precision()};
  for (size_t r = 0; r < given.reduced.size(); ++r)
    if (stored.reduced[r]) parameter.reduced.push_back(given.reduced[r]);
  parameter.truth = flat(*stored.truth);
  for (const auto& [number, tensor] : stored.inexact) parameter.inexact.push_back(flat(tensor));
  const Shape& shape = stored.truth->shape();
  if (shape.rank() > 1) parameter.rows = std::max<int64_t>(1, shape[0]);
  return parameter;
}

void add_rows(const StoredParameter& stored, std::vector<StepRow>& rows) {
  const StepParameter parameter = loaded_for_step(stored);
  auto found = parameter.reduced.begin();
  for (size_t r = 0; r < stored.reduced.size(); ++r)
    if (stored.reduced[r])
      rows.push_back({stored.name, static_cast<int>(r), parameter.truth.size(), distance_of(parameter, *found++)});
}

// How far the step is from the truth where collectives pass gradients on that they have lost; none if too far.
std::optional<double> mended_error(const StepEvidence& evidence) {
  double worst = 0;
  for (const StoredParameter& stored : evidence.parameters) {
    const StepParameter parameter = loaded_for_step(stored);
    for (const auto& each : stored.mended) {
      const double error = each ? distance_of(parameter, flat(*each)).error : 0;
      if (!(error <= limit)) return std::nullopt;
      worst = std::max(worst, error);
    }
  }
  return worst;
}

std::optional<StepCause> cause_in(const StepEvidence& evidence, const Dump& dump, const std::vector<StepRow>& rows) {
  Step step{.ranks = dump.ranks, .rows = dump.rows, .counts = dump.counts, .others_right = others_right(rows)};
  for (const std::string& name : sought_in(rows))
    step.parameters.push_back(loaded_for_step(*std::ranges::find(evidence.parameters, name, &StoredParameter::name)));
  if (step.parameters.empty()) return std::nullopt;
  const std::optional<StepCause> cause = cause_of(step);
  if ((cause && cause->signature) || evidence.mended.empty()) return cause;
  const std::optional<double> error = mended_error(evidence);
  return error ? lost_gradients(evidence.mended, *error) : cause;
}

std::vector<std::string> blindness_of(const StepEvidence& step, const Dump& dump) {
  std::map<std::string, int64_t> sizes;
  for (const StoredParameter& each : step.parameters) {
    const int64_t size = each.truth->shape().size();
    const auto whole = [&](const auto& term) { return term.tensor.shape().size() == size; };
    if (std::ranges::all_of(each.local,
                            [&](const auto& terms) { return !terms.empty() && std::ranges::all_of(terms, whole); }))
      sizes[each.name] = size;
  }
  const auto local_of = [&](const std::string& name) {
    return loaded(*std::ranges::find(step.parameters, name, &StoredParameter::name));
  };
  return blindness(sizes, local_of, dump.ranks, dump.rows);
}

}  // namespace

std::vector<std::string> sought_in(const std::vector<StepRow>& rows, int64_t at_most) {
  std::vector<std::string> names;
  int64_t elements = 0;
  for (const auto& [size, name] : wrong_sizes(rows)) {
    elements += size;
    if (names.empty() || elements <= at_most) names.push_back(name);
  }
  return names;
}

bool others_right(const std::vector<StepRow>& rows) {
  const Sizes wrong = wrong_sizes(rows);
  return std::ranges::any_of(rows, [&](const StepRow& row) {
    return row.distance.length > 0 &&
           std::ranges::find(wrong, row.parameter, &Sizes::value_type::second) == wrong.end();
  });
}

std::vector<std::string> blindness(const std::map<std::string, int64_t>& sizes, const LocalOf& local_of, int ranks,
                                   const std::vector<int64_t>& rows) {
  if (ranks == 1 || std::ssize(rows) != ranks) return {};
  Sizes by_size;
  for (const auto& [name, size] : sizes)
    if (size > 0) by_size.emplace_back(size, name);
  std::ranges::sort(by_size);
  std::optional<std::set<std::string>> all;
  for (const auto& [size, name] : by_size) {
    const std::set<std::string> own = blind_in(local_of(name), ranks);
    if (!all) all = own;
    std::erase_if(*all, [&](const std::string& each) { return !own.contains(each); });
    if (all->empty()) break;
  }
  std::vector<std::string> names;
  if (all) names.assign(all->begin(), all->end());
  // Means of uneven shards cannot be told from the mean of all where they are even.
  if (std::ranges::all_of(rows, [&](int64_t each) { return each == rows[0]; })) names.push_back("S12");
  return names;
}

Verdict verdict(const FoundInStep& found) {
  Verdict verdict;
  std::map<std::string, const StepRow*> worst;
  for (const StepRow& row : found.rows) {
    const StepRow*& place = worst.try_emplace(row.parameter, &row).first->second;
    if (row.distance.error > place->distance.error) place = &row;
  }
  std::set<std::string> names;
  for (const StepRow& row : found.rows) {
    if (!names.insert(row.parameter).second) continue;
    const auto& [parameter, rank, elements, of_row] = *worst[row.parameter];
    verdict.table.push_back({parameter + " of rank " + std::to_string(rank), elements, of_row.error, of_row.cosine,
                             of_row.ratio, of_row.worst_element, of_row.found, of_row.truth, of_row.shown});
  }
  if (found.rows.empty()) {
    verdict.outcome = Outcome::cannot_tell;
    verdict.remarks.push_back("no elements were compared: dump gradients of at least one parameter");
  }
  const auto all_wrong = std::ssize(wrong_sizes(found.rows)), sought = std::ssize(sought_in(found.rows));
  verdict.subject =
      (all_wrong ? std::to_string(all_wrong) + " of " : "") + std::to_string(worst.size()) + " parameters";
  verdict.blind_to = found.blind_to;
  for (const std::string& each : found.lost)
    verdict.remarks.push_back("no gradient passes through " + each +
                              ", on one process neither: take another truth, or detach what needs none");
  if (all_wrong == 0) {
    if (!found.lost.empty()) verdict.outcome = Outcome::cannot_tell;
    return verdict;
  }
  verdict.outcome = Outcome::wrong;
  if (sought < all_wrong)
    verdict.remarks.push_back("sought in the smallest " + std::to_string(sought) + " of these " +
                              std::to_string(all_wrong));
  if (!found.cause) return verdict;
  const auto& [signature, text, error, repair] = *found.cause;
  if (signature)
    verdict.best = Explained{signature, text, error};
  else
    verdict.described = Described{text, error, repair};
  return verdict;
}

Verdict verdict(const StepEvidence& step, const Dump& dump) {
  FoundInStep found;
  for (const StoredParameter& each : step.parameters) add_rows(each, found.rows);
  found.cause = cause_in(step, dump, found.rows);
  found.blind_to = blindness_of(step, dump);
  found.lost = step.lost;
  return verdict(found);
}

}  // namespace weft::verify
