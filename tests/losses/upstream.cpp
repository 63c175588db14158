// SPDX-License-Identifier: Apache-2.0
#include "tests/losses/upstream.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"

namespace weft {
namespace {

using Json = nlohmann::json;

Tensor tensor(const Json& json) {
  const auto extents = json.at("shape").get<std::vector<int64_t>>();
  return Tensor::from(Shape(std::span(extents)), json.at("values").get<std::vector<double>>(), DType::f64);
}
std::vector<Tensor> tensors(const Json& json) {
  std::vector<Tensor> result;
  for (const Json& item : json) result.push_back(tensor(item));
  return result;
}
UpstreamCase::Named named_tensors(const Json& json) {
  UpstreamCase::Named result;
  for (const auto& [name, item] : json.items()) result.emplace(name, tensor(item));
  return result;
}

UpstreamCase::Result result_of(const Json& json) {
  UpstreamCase::Result result;
  result.values = json.value("values", std::vector<double>());
  result.rows = tensors(json.value("rows", Json::array()));
  for (const Json& of_rank : json.value("shared", Json::array())) result.shared.push_back(tensors(of_rank));
  for (const Json& of_rank : json.value("states", Json::array())) result.states.push_back(named_tensors(of_rank));
  return result;
}

UpstreamCase case_of(const Json& file, const Json& json) {
  UpstreamCase c;
  c.library = file.at("library").get<std::string>() + " " + file.at("version").get<std::string>();
  c.loss = json.at("loss");
  c.mode = json.at("mode");
  for (const int64_t rows : json.at("division")) c.division.push_back(rows);
  c.inputs = tensors(json.at("inputs"));
  c.shared = tensors(json.at("shared"));
  c.given = named_tensors(json.at("given"));
  if (json.at("variant").is_string()) c.beside = c.loss + json.at("variant").get<std::string>();
  c.one = result_of(json.at("one"));
  c.ranks = result_of(json.value("ranks", Json::object()));
  return c;
}

// What a reducer that averages over ranks makes of the gradients of features and of shared inputs. Each feature is on
// one rank alone.
Tensor reduced_rows(const UpstreamCase& c, size_t input) {
  return (Var(c.ranks.rows[input]) / static_cast<double>(c.division.size())).value();
}
Tensor reduced_shared(const UpstreamCase& c, size_t input) {
  Var sum = c.ranks.shared[0][input];
  for (size_t r = 1; r < c.ranks.shared.size(); ++r) sum = sum + c.ranks.shared[r][input];
  return (sum / static_cast<double>(c.ranks.shared.size())).value();
}

double relative(double actual, double expected) {
  return std::abs(actual - expected) / std::max(1.0, std::abs(expected));
}

}  // namespace

Upstream::Upstream(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    const Json file = Json::parse(std::ifstream(path));
    for (const Json& json : file.at("cases")) cases_.push_back(case_of(file, json));
  }
}

const Upstream& Upstream::stored() {
  static const Upstream all(WEFT_TEST_FILES "/upstream");
  return all;
}

const UpstreamCase& Upstream::operator()(const std::string& loss, const std::string& mode) const {
  for (const UpstreamCase& c : cases_)
    if (c.loss == loss && c.mode == mode) return c;
  fail({"upstream: nothing is stored of ", loss, ", ", mode});
}

std::string Upstream::difference(const std::string& loss, const std::string& variant) const {
  for (const UpstreamCase& c : cases_) {
    if (c.beside != loss + variant) continue;
    const Graded one{c.one.values[0], c.one.rows, c.one.shared[0]};
    char text[32];
    std::snprintf(text, sizeof text, ": %.1e", std::max(features_apart(c, one), scalars_apart(c, one)));
    return c.library + text;
  }
  return "";
}

Graded on_ranks_of(const UpstreamCase& c, const ShareOfLoss& loss) {
  Graded result;
  run_ranks(static_cast<int>(c.division.size()), [&](Communicator& comm) {
    const auto me = static_cast<size_t>(comm.rank().value);
    const int64_t first = std::reduce(c.division.begin(), c.division.begin() + comm.rank().value);
    Tape tape;
    declare_group(tape, comm);
    std::vector<Var> rows, shared, all;
    for (const Tensor& t : c.inputs) rows.push_back(tape.watch(t.slice(first, first + c.division[me])));
    for (const Tensor& t : c.shared) shared.push_back(with_placement(tape.watch(t), comm, Placement::replicated));
    all.insert(all.end(), rows.begin(), rows.end());
    all.insert(all.end(), shared.begin(), shared.end());
    const Var share = loss(rows, shared, comm);
    Graded mine{sum_over_ranks(share.value().item(), comm), {}, {}};
    for (const Var& g : tape.gradient(share, all))
      if (mine.rows.size() < rows.size())
        mine.rows.push_back(comm.all_gather_v(g.value(), c.division));
      else
        mine.shared.push_back(comm.all_reduce(g.value()));
    if (me == 0) result = mine;
  });
  return result;
}

double apart(const Tensor& actual, const Tensor& expected, double factor) {
  require(actual.shape() == expected.shape(), "apart: ", actual.shape(), " and ", expected.shape());
  const auto a = actual.values(), e = expected.values();
  double largest = 0, difference = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    largest = std::max(largest, std::abs(e[i]));
    difference = std::isfinite(a[i]) ? std::max(difference, std::abs(a[i] - factor * e[i])) : INFINITY;
  }
  return largest > 0 ? difference / largest : difference;
}

double apart_on_one_process(const UpstreamCase& c, const Graded& ours) {
  double result = relative(c.one.values[0], ours.value);
  for (size_t i = 0; i < c.one.rows.size(); ++i) result = std::max(result, apart(c.one.rows[i], ours.rows[i]));
  for (size_t i = 0; i < c.shared.size(); ++i) result = std::max(result, apart(c.one.shared[0][i], ours.shared[i]));
  return result;
}

double value_apart(const UpstreamCase& c, const Graded& ours) {
  const auto& values = c.ranks.values;
  return relative(std::reduce(values.begin(), values.end()) / static_cast<double>(values.size()), ours.value);
}

double features_apart(const UpstreamCase& c, const Graded& ours, double factor) {
  double result = 0;
  for (size_t i = 0; i < c.ranks.rows.size(); ++i)
    result = std::max(result, apart(reduced_rows(c, i), ours.rows[i], factor));
  return result;
}

double scalars_apart(const UpstreamCase& c, const Graded& ours, double factor) {
  double result = 0;
  for (size_t i = 0; i < c.shared.size(); ++i)
    result = std::max(result, apart(reduced_shared(c, i), ours.shared[i], factor));
  return result;
}

double apart_everywhere(const UpstreamCase& c, const Graded& ours) {
  return std::max(
      {apart_on_one_process(c, ours), value_apart(c, ours), features_apart(c, ours), scalars_apart(c, ours)});
}

double features_factor(const UpstreamCase& c, const Graded& ours) {
  double products = 0, squares = 0;
  for (size_t i = 0; i < c.ranks.rows.size(); ++i) {
    const auto theirs = reduced_rows(c, i).values(), own = ours.rows[i].values();
    products += std::inner_product(theirs.begin(), theirs.end(), own.begin(), 0.0);
    squares += std::inner_product(own.begin(), own.end(), own.begin(), 0.0);
  }
  return products / squares;
}

}  // namespace weft
