// SPDX-License-Identifier: Apache-2.0
#include "tests/training/resume_run.h"

#include "weft/engine/kernels/scalar_ops.h"

namespace weft {
namespace {

constexpr int64_t samples = 26, batch_size = 9, features = 5;  // epochs of three batches, the last one smaller

// Weights have a learning rate of their own, and Muon is used for them alone.
std::vector<ParameterGroup> groups_of(const std::vector<Parameter*>& parameters, const Rule& rule) {
  const bool of_matrices = std::holds_alternative<Muon>(rule);
  std::vector<ParameterGroup> groups = {{{}, rule}, {{}, of_matrices ? Rule(AdamW{}) : rule, 0.5}};
  for (Parameter* parameter : parameters) groups[parameter->value.shape().rank() < 2].parameters.push_back(parameter);
  return groups;
}

Tensor rows_of(std::span<const int64_t> chosen, DType dtype) {
  const Tensor all = Tensor::uniform({samples, features}, {77}, -1, 1, DType::f64);
  Tensor rows({static_cast<int64_t>(chosen.size()), features}, DType::f64);
  for (int64_t i = 0; i < rows.shape()[0]; ++i) {
    const int64_t sample = chosen[static_cast<size_t>(i)];
    rows.slice(i, i + 1).copy_from(all.slice(sample, sample + 1));
  }
  return rows.to(dtype);
}

}  // namespace

ResumeRun::ResumeRun(Communicator& comm, const ResumeSetup& setup)
    : comm_(comm),
      setup_(setup),
      init_{.key = {setup.seed}, .dtype = setup.dtype},
      first_("first", features, setup.width, init_, {.op = Unary::Tanh}),
      rare_("rare", features, setup.width, init_, {.op = Unary::Tanh}),
      norm_("norm", setup.width, init_, comm),
      dropout_("dropout", 0.3),
      last_("last", setup.width, 3, init_),
      batches_(samples, batch_size, setup.seed),
      seed_(setup.seed) {
  const std::vector<ParameterGroup> groups = groups_of(parameters(), setup.rule);
  if (setup.stage == ResumeSetup::alone)
    optimizer_ = std::make_unique<Optimizer>(groups);
  else if (setup.stage == 3)
    sharded_ = std::make_unique<Sharded>(groups, comm);
  else
    parallel_ = std::make_unique<DataParallel>(groups, comm, DataParallel::Options{.stage = setup.stage});
  if (setup.averages()) average_ = std::make_unique<WeightAverage>(optimizer().parameters(), optimizer().owned());
  state_ = std::make_unique<TrainingState>(comm);
  state_->add(optimizer(), average_.get());
  state_->add(buffers());
}

std::vector<Parameter*> ResumeRun::parameters() const {
  std::vector<Parameter*> all;
  for (const Module* module : std::initializer_list<const Module*>{&first_, &rare_, &norm_, &last_})
    for (Parameter* parameter : module->parameters()) all.push_back(parameter);
  return all;
}

Optimizer& ResumeRun::optimizer() {
  return optimizer_ ? *optimizer_ : sharded_ ? sharded_->optimizer() : parallel_->optimizer();
}
Gradients& ResumeRun::gradients() {
  return optimizer_ ? gradients_ : sharded_ ? sharded_->gradients() : parallel_->gradients();
}

Var ResumeRun::through(Layer& layer, const Var& x, const Pass& pass) {
  if (!sharded_) return layer(x, pass);
  return sharded_->run(sharded_->unit(layer.parameters()), x, [&layer, pass](const Var& x) { return layer(x, pass); });
}

Var ResumeRun::loss(Tape& tape) {
  const std::span<const int64_t> batch = batches_.next();
  const size_t rank = static_cast<size_t>(number(comm_)), ranks = static_cast<size_t>(comm_.size());
  const size_t begin = batch.size() * rank / ranks, end = batch.size() * (rank + 1) / ranks;
  const Pass pass = {
      .training = true, .key = {seed_, static_cast<uint64_t>(step_)}, .first_sample = static_cast<int64_t>(begin)};
  const Var x = tape.constant(rows_of(batch.subspan(begin, end - begin), setup_.dtype));
  Var h = through(first_, x, pass);
  if (step_ % 2 == 1) h = h + through(rare_, x, pass);
  const Var y = through(last_, dropout_(through(norm_, h, pass), pass), pass);
  return sum(square(y - 1)) * (1.0 / static_cast<double>(batch.size()));
}

void ResumeRun::descend(double rate) {
  constexpr double max_norm = 0.5;
  if (sharded_) {
    sharded_->step(rate, max_norm);
  } else if (parallel_) {
    parallel_->step(rate, max_norm);
  } else {
    optimizer_->step(gradients_, rate, clip(optimizer_->norm(gradients_), max_norm));
    gradients_.clear();
  }
}

void ResumeRun::step() {
  Tape tape;
  tape.backward(loss(tape), gradients());
  descend(0.01 / static_cast<double>(1 + step_));
  if (average_) average_->update(0.9);
  ++step_;
}

Metadata ResumeRun::words() const {
  return {{"data", batches_.position()}, {"seed", std::to_string(seed_)}, {"step", std::to_string(step_)}};
}

void ResumeRun::set(const Metadata& words) {
  seed_ = std::stoull(words.at("seed"));
  step_ = std::stoll(words.at("step"));
  batches_ = Batches(samples, batch_size, seed_);
  batches_.seek(words.at("data"));
}

void ResumeRun::save(const std::filesystem::path& folder) {
  state_->save([&](const TensorSource& get) { save_checkpoint(folder, step_, state_->tensors(), get, words()); });
}

bool ResumeRun::load(const std::filesystem::path& folder) {
  const Metadata words = state_->load([&](const TensorSink& put) -> Metadata {
    const Latest latest = latest_checkpoint(folder);
    if (!latest.file) return {};
    load_checkpoint(*latest.file, state_->tensors(), put);
    return latest.file->metadata();
  });
  if (!words.empty()) set(words);
  return !words.empty();
}

NamedTensors ResumeRun::local() {
  NamedTensors all = {{"values", optimizer().parameters().flat()}};
  for (const Optimizer::State& state : optimizer().state())
    all.push_back({state.parameter->name + "." + state.name, state.values});
  for (const Parameter* parameter : parameters())
    all.push_back({parameter->name + ".steps", scalar(static_cast<double>(optimizer().steps(*parameter)))});
  for (const Parameter* buffer : buffers()) all.push_back({buffer->name, buffer->value});
  if (average_) all.push_back({"average", average_->flat()});
  for (auto& [name, tensor] : all) tensor = tensor.clone();
  return all;
}

NamedTensors ResumeRun::whole() {
  NamedTensors all;
  std::vector<Optimizer::State> states = optimizer().state();
  for (const Place& place : optimizer().parameters().layout().places()) {
    const Parameter& p = *place.parameter;
    all.push_back({p.name, p.value});
    all.push_back({p.name + ".steps", Tensor::full({}, static_cast<double>(optimizer().steps(p)), DType::i64)});
    for (const Optimizer::State& state : states)
      if (state.parameter == &p) all.push_back({p.name + "." + state.name, state.values.reshape(state.shape)});
    if (average_)
      all.push_back({p.name + ".average",
                     average_->flat().slice(place.begin, place.begin + place.size).reshape(p.value.shape())});
  }
  for (const Parameter* buffer : buffers()) all.push_back({buffer->name, buffer->value});
  for (auto& [name, tensor] : all) tensor = tensor.clone();
  return all;
}

void ResumeRun::set_whole(const NamedTensors& whole, const Metadata& words) {
  const auto get = [&](const std::string& name) {
    for (const auto& [other, tensor] : whole)
      if (other == name) return tensor;
    fail({"there is no ", name});
  };
  const auto copy = [](const Tensor& from, Tensor to) { to.copy_from(from.reshape(to.shape())); };
  for (const Place& place : optimizer().parameters().layout().places()) {
    const Parameter& p = *place.parameter;
    copy(get(p.name), p.value);
    optimizer().set_steps(p, static_cast<int64_t>(get(p.name + ".steps").item()));
    if (average_) copy(get(p.name + ".average"), average_->flat().slice(place.begin, place.begin + place.size));
  }
  for (const Optimizer::State& state : optimizer().state())
    copy(get(state.parameter->name + "." + state.name), state.values);
  for (const Parameter* buffer : buffers()) copy(get(buffer->name), buffer->value);
  set(words);
}

void expect_same(const NamedTensors& actual, const NamedTensors& expected, Site site) {
  expect(actual.size() == expected.size(), "not the same tensors", site);
  for (size_t i = 0; i < expected.size(); ++i) {
    expect(actual[i].name == expected[i].name, actual[i].name + " is not " + expected[i].name, site);
    expect_same_bits(actual[i].tensor, expected[i].tensor, site);
  }
}

void expect_undisturbed(Communicator& comm, ResumeSetup setup, int half, const std::filesystem::path& folder) {
  ResumeRun undisturbed(comm, setup), saved(comm, setup);
  undisturbed.steps(2 * half);
  saved.steps(half);
  saved.save(folder);
  saved.steps(half);
  expect_same(saved.local(), undisturbed.local());
  setup.seed += 1;
  ResumeRun resumed(comm, setup);
  expect(resumed.load(folder), "there is a checkpoint");
  resumed.steps(half);
  expect_same(resumed.local(), undisturbed.local());
  expect(resumed.words() == undisturbed.words(), "another place in the data");
}

}  // namespace weft
