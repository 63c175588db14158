// SPDX-License-Identifier: Apache-2.0
// Computes the numbers in the documents' pictures. Columns are the collective's inputs, then its results, a result's
// cotangents, and for each result the gradients of the inputs.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/documents/test_documents.h"
#include "weft/collectives/collectives.h"

namespace weft::documents {
namespace {

struct Collective {
  const char* name;
  size_t inputs;
  Vars (*call)(const Vars& x, Tape& tape, Communicator& comm);
};

GroupRank middle(const Communicator& comm) { return {comm.size() / 2}; }

const Collective collectives[] = {
    {"all_reduce sum", 1, [](auto& x, auto&, auto& comm) { return Vars{all_reduce(x[0], comm)}; }},
    {"all_reduce maximum", 1,
     [](auto& x, auto&, auto& comm) { return Vars{all_reduce(x[0], comm, ReduceOp::maximum)}; }},
    {"all_reduce product", 1,
     [](auto& x, auto&, auto& comm) { return Vars{all_reduce(x[0], comm, ReduceOp::product)}; }},
    {"reduce_scatter", 1, [](auto& x, auto&, auto& comm) { return Vars{reduce_scatter(x[0], comm)}; }},
    {"all_gather", 1, [](auto& x, auto&, auto& comm) { return Vars{all_gather(x[0], comm)}; }},
    {"all_gather uneven", 1,
     [](auto& x, auto&, auto& comm) { return Vars{all_gather_v(x[0], comm.rows_of(x[0].size()), comm)}; }},
    {"broadcast", 1, [](auto& x, auto&, auto& comm) { return Vars{broadcast(x[0], middle(comm), comm)}; }},
    {"reduce", 1, [](auto& x, auto&, auto& comm) { return Vars{reduce(x[0], middle(comm), comm)}; }},
    {"gather", 1, [](auto& x, auto&, auto& comm) { return Vars{gather(x[0], middle(comm), comm)}; }},
    {"scatter", 1, [](auto& x, auto&, auto& comm) { return Vars{scatter(x[0], middle(comm), comm)}; }},
    {"all_to_all", 1, [](auto& x, auto&, auto& comm) { return Vars{all_to_all(x[0], comm)}; }},
    {"permute, shift", 1,
     [](auto& x, auto&, auto& comm) {
       return Vars{permute(x[0], {-1, 0, 0}, comm), shift(x[0], 1, comm)};
     }},
    {"send and receive", 1,
     [](auto& x, auto& tape, auto& comm) {
       if (comm.rank() == GroupRank{0}) return Vars{send(x[0], {1}, comm)};
       return Vars{receive(tape, {}, DType::f64, Device::cpu, {0}, comm)};
     }},
    {"scan, exscan", 1,
     [](auto& x, auto&, auto& comm) {
       return Vars{scan(x[0], comm), exscan(x[0], comm)};
     }},
    {"weighted_mean", 2, [](auto& x, auto&, auto& comm) { return Vars{weighted_mean(x[0], x[1], comm)}; }},
    {"all_reduce_norm", 1, [](auto& x, auto&, auto& comm) { return Vars{all_reduce_norm(x[0], comm)}; }},
    {"all_reduce_log_sum_exp", 1, [](auto& x, auto&, auto& comm) { return Vars{all_reduce_log_sum_exp(x[0], comm)}; }},
};

// "7", "ln 4", "-27.75", "[1, 2]"; "-" is empty.
std::vector<double> numbers(const std::string& cell) {
  std::vector<double> result;
  std::string text = cell;
  for (char& c : text)
    if (c == '[' || c == ']' || c == ',') c = ' ';
  std::istringstream words(text);
  bool logarithm = false;
  for (std::string word; words >> word;) {
    if (word == "ln") logarithm = true;
    if (word == "ln" || word == "-") continue;
    result.push_back(logarithm ? std::log(std::stod(word)) : std::stod(word));
  }
  return result;
}

Tensor tensor(const std::string& cell) {
  const std::vector<double> values = numbers(cell);
  if (cell[0] != '[') return values.empty() ? Tensor::zeros({}, DType::f64) : Tensor::full({}, values[0], DType::f64);
  return Tensor::from({static_cast<int64_t>(values.size())}, values, DType::f64);
}

void expect_shown(const Picture& picture, size_t column, int rank, const Tensor& actual) {
  const std::string& cell = picture.rows[static_cast<size_t>(rank)][column];
  if (cell == "-") return;
  const std::vector<double> shown = numbers(cell), values = actual.values();
  bool same = shown.size() == values.size();
  for (size_t i = 0; same && i < shown.size(); ++i)
    same = std::abs(shown[i] - values[i]) <= 1e-12 * std::max(1.0, std::abs(shown[i]));
  require(same, picture.place, ": rank ", rank, " shows ", cell, " as ", picture.columns[column], ", but it is ",
          text(actual));
}

void compute(const Picture& picture, const Collective& collective, Communicator& comm) {
  const int me = comm.rank().value;
  const std::vector<std::string>& row = picture.rows[static_cast<size_t>(me)];
  Tape tape;
  Vars x;
  for (size_t i = 0; i < collective.inputs; ++i) x.push_back(tape.watch(tensor(row[i])));
  const Vars y = collective.call(x, tape, comm);
  require(picture.columns.size() == x.size() + y.size() + 1 + y.size() * x.size(), picture.place, ": ",
          picture.columns.size(), " columns");
  const size_t cotangent = x.size() + y.size();
  size_t column = cotangent + 1;
  for (size_t i = 0; i < y.size(); ++i) {
    expect_shown(picture, x.size() + i, me, y[i].value());
    const Var seed = y[i].size() == 0 && row[cotangent] == "-" ? Var(Tensor::zeros(y[i].shape(), DType::f64))
                                                               : Var(tensor(row[cotangent]));
    for (const Var& gradient : tape.gradient(y[i], seed, {x.begin(), x.end()}))
      expect_shown(picture, column++, me, gradient.value());
  }
}

// The groups that colors form: their members, and each rank's number in its group.
void split(const Picture& picture, Communicator& comm) {
  const std::vector<std::string>& row = picture.rows[static_cast<size_t>(comm.rank().value)];
  const auto group = comm.split(std::stoi(row[0]));
  std::string members;
  for (int r = 0; r < group->size(); ++r) members += (r == 0 ? "{" : ", ") + text(group->global({r}));
  require(members + "}" == row[1] && text(group->rank()) == row[2], picture.place, ": rank ", comm.rank(),
          " is number ", group->rank(), " of ", members, "}");
}

}  // namespace

std::string fault_of(const Picture& picture) try {
  const auto found = std::find_if(std::begin(collectives), std::end(collectives),
                                  [&](const Collective& c) { return c.name == picture.name; });
  require(picture.name == "split" || found != std::end(collectives), picture.place, ": there is no picture of ",
          picture.name);
  run_ranks(static_cast<int>(picture.rows.size()), [&](Communicator& comm) {
    picture.name == "split" ? split(picture, comm) : compute(picture, *found, comm);
  });
  return "";
} catch (const std::exception& error) {
  return error.what();
}

}  // namespace weft::documents
