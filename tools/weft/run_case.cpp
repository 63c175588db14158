// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/run_case.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cases/losses/loss_case.h"
#include "weft/collectives/run_ranks.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/files/safetensors.h"
#include "weft/engine/text/suggestion.h"

namespace weft {
namespace {

constexpr int64_t directions = 3;
constexpr double step = 1e-3;

// Letters and digits alone, in lower case.
std::string key_of(const std::string& name) {
  std::string key;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return key;
}
std::string without_variant(const std::string& name) { return name.substr(0, name.find(", ")); }

const DistributedCase& case_named(const std::string& name) {
  for (const auto part : {+[](const std::string& full) { return full; }, +without_variant})
    for (const DistributedCase* c : DistributedCase::all())
      if (key_of(part(c->name)) == key_of(name)) return *c;
  std::vector<std::string> known;
  for (const std::string& each : case_names())
    for (const std::string& form : {each, without_variant(each), key_of(without_variant(each))}) known.push_back(form);
  fail({"run: no case is called '", name, "'", suggestion(name, known), "; `weft cases` lists them"});
}

// A loss that the verifier knows, and how its case is called there.
struct KnownLoss {
  std::string name;
  std::vector<std::string> variants;  // of the case that are this loss; any if there are none
  std::vector<std::string> inputs;    // a name that begins with log_ is of the logarithm
};
const KnownLoss* known_loss(const LossCase& loss) {
  static const std::vector<std::string> schedules = {"gather", "ring", "both ways", "per rank", "chunked"};
  static const std::map<std::string, KnownLoss> known = {
      {"CLIP", {"clip", {}, {"images", "texts", "log_scale"}}},
      {"SigLIP", {"siglip", {}, {"images", "texts", "log_scale", "bias"}}},
      {"NT-Xent", {"nt_xent", schedules, {"first", "second"}}},
      {"DCL", {"dcl", schedules, {"first", "second"}}},
      {"InfoNCE", {"info_nce", schedules, {"queries", "keys"}}}};
  const auto found = known.find(loss.name);
  if (found == known.end()) return nullptr;
  const std::vector<std::string>& variants = found->second.variants;
  const bool same = variants.empty() || std::ranges::find(variants, loss.variant) != variants.end();
  return same ? &found->second : nullptr;
}

using Inputs = std::vector<std::vector<Tensor>>;  // by rank
using Tensors = std::vector<NamedTensor>;

Tensor flat(const Tensor& x) { return x.reshape({x.size()}); }
Tensor one_number(double x) { return Tensor::full({}, x, DType::f64); }
double dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.values(), y = b.values();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// One case on one number of ranks. Every rank has the inputs of all: numbers of the type in which the case runs, kept
// in f64 for the differences.
class Recorder {
 public:
  Recorder(const DistributedCase& c, const CaseRun& run)
      : case_(c), ranks_(run.ranks), seed_(run.seed), dtype_(run.dtype) {
    for (const LossCase* each : LossCase::all())
      if (&each->distributed == &c) loss_ = each;
    for (int r = 0; r < ranks_; ++r) {
      std::vector<Tensor>& mine = start_.emplace_back();
      for (const Shape& shape : c.shapes(r, ranks_)) {
        const uint64_t input = mine.size(), rank = shared(input) ? 0 : static_cast<uint64_t>(r);
        const Tensor drawn = Tensor::uniform(shape, {seed_, 100 * rank + input}, c.low, c.high, DType::f64);
        mine.push_back(drawn.to(dtype_).to(DType::f64));
      }
    }
  }

  // What one rank writes.
  Tensors record(Communicator& comm) const {
    const int rank = comm.rank().value;
    Tape tape;
    const std::vector<Var> inputs = watched(tape, start_, rank, dtype_);
    const Var value = case_.call(inputs, comm);
    const Tensor cotangent = cotangent_of(value.value(), rank).to(value.value().dtype());
    const std::vector<Var> gradients = tape.gradient(value, Var(cotangent), inputs);
    Tensors all = {{"value", value.value()}, {"cotangent", cotangent}};
    for (size_t k = 0; k < inputs.size(); ++k) {
      all.push_back({input_name(k), inputs[k].value()});
      all.push_back({input_name(k) + ".grad", gradients[k].value()});
    }
    if (const KnownLoss* known = known_here()) add_known(all, *known, inputs, gradients);
    if (differentiable()) add_differences(all, gradients, comm);
    return all;
  }

  nlohmann::ordered_json manifest() const {
    nlohmann::ordered_json result = {
        {"weft_manifest", 1}, {"case", case_.name}, {"seed", seed_}, {"dtype", text(dtype_)}, {"reducer", "sum"}};
    if (const KnownLoss* known = known_here()) result["loss"] = {{"name", known->name}};
    for (int r = 0; r < ranks_; ++r) result["files"].push_back("rank" + std::to_string(r) + ".safetensors");
    if (loss_) result["rows"] = loss_->division(ranks_);
    if (differentiable()) result["scale"] = {{"step", step}};
    return result;
  }

 private:
  static std::string input_name(size_t k) { return "input." + std::to_string(k); }
  // Equal on all ranks, such as a temperature.
  bool shared(size_t k) const { return loss_ && k >= loss_->drawn.rows.size(); }
  const KnownLoss* known_here() const { return loss_ ? known_loss(*loss_) : nullptr; }
  // Whether finite differences show the gradient, and there is anything that has one.
  bool differentiable() const { return case_.orders > 0 && parameter_size(0) > 0; }

  static std::vector<Var> watched(Tape& tape, const Inputs& at, int rank, DType dtype = DType::f64) {
    std::vector<Var> result;
    for (const Tensor& x : at[static_cast<size_t>(rank)]) result.push_back(tape.watch(x.to(dtype)));
    return result;
  }
  // The shares of all ranks are added up. Other values have a random cotangent each, of the type of the case.
  Tensor cotangent_of(const Tensor& value, int rank) const {
    if (loss_) return Tensor::full(value.shape(), 1, DType::f64);
    const uint64_t key = 100 * static_cast<uint64_t>(rank) + 99;
    return Tensor::uniform(value.shape(), {seed_, key}, -1, 1, DType::f64).to(dtype_).to(DType::f64);
  }

  void add_known(Tensors& all, const KnownLoss& known, const std::vector<Var>& inputs,
                 const std::vector<Var>& gradients) const {
    for (size_t k = 0; k < inputs.size(); ++k) {
      std::string name = known.inputs[k];
      Tensor x = inputs[k].value(), gradient = gradients[k].value();
      if (name.starts_with("log_")) {  // dL/ds = dL/d(log s) / s
        name = name.substr(4);
        x = one_number(std::exp(x.item()));
        gradient = one_number(gradient.item() / x.item()).to(dtype_);
      }
      all.push_back({name, x});
      all.push_back({name + ".grad", gradient});
    }
  }

  // An input of all ranks is one parameter, one rank after the other. A shared one has their sum as its gradient.
  void add_differences(Tensors& all, const std::vector<Var>& gradients, Communicator& comm) const {
    add_values(all, "", comm, [&](auto value_at) { return one_number(value_at(start_)); });
    for (size_t k = 0; k < gradients.size(); ++k) {
      const Tensor along = Tensor::uniform({directions, parameter_size(k)}, {seed_, 1000 + k}, -1, 1, DType::f64);
      const Tensor mine = flat(gradients[k].value());
      all.push_back({"reduced/" + input_name(k),
                     shared(k) ? comm.all_reduce(mine) : comm.all_gather_v(mine, comm.rows_of(mine.size()))});
      if (comm.rank().value == 0) all.push_back({"direction/" + input_name(k), along});
      add_values(all, "/" + input_name(k), comm, [&](auto value_at) {
        Tensor values = Tensor::zeros({directions, 4}, DType::f64);
        for (int64_t d = 0; d < directions; ++d)
          for (const auto& [column, by] : {std::pair(0, -step), {1, -step / 2}, {2, step / 2}, {3, step}})
            values.mutate<double>()[4 * d + column] = value_at(moved(k, along, d, by));
        return values;
      });
    }
  }

  // Of this rank's loss, and on rank 0 of the formula for one process, if there is one.
  template <class Tabulate>
  void add_values(Tensors& all, const std::string& of, Communicator& comm, Tabulate tabulate) const {
    const int rank = comm.rank().value;
    all.push_back({"rank_loss" + of, tabulate([&](const Inputs& at) {
                     Tape tape;
                     const Tensor value = case_.call(watched(tape, at, rank), comm).value();
                     return dot(cotangent_of(value, rank), value);
                   })});
    if (loss_ && rank == 0)
      all.push_back({"objective" + of, tabulate([&](const Inputs& at) { return objective(at); })});
  }

  int64_t parameter_size(size_t k) const {
    int64_t size = 0;
    for (const auto& mine : start_) size += shared(k) && size > 0 ? 0 : mine[k].size();
    return size;
  }

  Inputs moved(size_t k, const Tensor& along, int64_t direction, double by) const {
    Inputs result = start_;
    const double* d = along.data<double>() + direction * parameter_size(k);
    for (auto& mine : result) {
      std::vector<double> values = mine[k].values();
      for (size_t i = 0; i < values.size(); ++i) values[i] += by * d[i];
      if (!shared(k)) d += values.size();
      mine[k] = Tensor::from(mine[k].shape(), values, DType::f64);
    }
    return result;
  }

  double objective(const Inputs& at) const {
    Tape tape;
    std::vector<Var> rows, shared_inputs;
    for (size_t k = 0; k < at[0].size(); ++k) {
      if (shared(k)) {
        shared_inputs.push_back(tape.watch(at[0][k]));
        continue;
      }
      std::vector<double> all;
      for (const auto& mine : at) {
        const std::vector<double> values = mine[k].values();
        all.insert(all.end(), values.begin(), values.end());
      }
      rows.push_back(
          tape.watch(Tensor::from(loss_->drawn.rows[k].with_inserted(0, loss_->drawn.samples), all, DType::f64)));
    }
    return loss_->whole(loss_->inputs(rows, shared_inputs, 0, 1)).value().item();
  }

  const DistributedCase& case_;
  const LossCase* loss_ = nullptr;
  const int ranks_;
  const uint64_t seed_;
  const DType dtype_;
  Inputs start_;
};

}  // namespace

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const DistributedCase* c : DistributedCase::all()) names.push_back(c->name);
  return names;
}

std::string run_case(const CaseRun& run) {
  const DistributedCase& c = case_named(run.name);
  const Recorder recorder(c, run);
  std::vector<Tensors> of_ranks(static_cast<size_t>(run.ranks));
  try {
    run_ranks(run.ranks,
              [&](Communicator& comm) { of_ranks[static_cast<size_t>(comm.rank().value)] = recorder.record(comm); });
  } catch (const Error& error) {
    if (run.dtype == DType::f64) throw;
    fail({"run: '", c.name, "' has a state of its own in f64, so it does not run in ", text(run.dtype), ": ",
          error.what()});
  }
  std::filesystem::create_directories(run.folder);
  const nlohmann::ordered_json manifest = recorder.manifest();
  for (size_t r = 0; r < of_ranks.size(); ++r)
    write_safetensors(run.folder / manifest["files"][r].get<std::string>(), of_ranks[r], {});
  const std::string text = manifest.dump(2) + "\n";
  DurableFile file(run.folder / "manifest.json");
  file.write(0, text.data(), text.size());
  file.commit();
  return c.name;
}

}  // namespace weft
