// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/parallel/data_parallel.h"

#include "weft/engine/kernels/backend.h"

namespace weft {

// A bundle whose parameters every rank has whole. Its gradients are summed, and its optimizer's state may be divided.
class DataParallel::Replica final : public Bundle {
 public:
  Replica(BundlePlan plan, const Options& options)
      : comm_(std::move(plan.comm)),
        sharded_(options.stage > 0),
        parameters_(lay_out(layout_of(plan.groups))),
        sync_(parameters_.layout(), *comm_,
              {.when = options.when, .bucket = options.bucket, .sharded = sharded_, .frees = options.stage == 2}),
        optimizer_(parameters_, plan.groups, sync_.owned(), combine_norms()) {}

  GradientSync& sync() { return sync_; }
  Communicator& comm() { return *comm_; }
  bool is_common() const { return common_; }

  Gradients& gradients() override { return sync_.gradients(); }
  Optimizer& optimizer() override { return optimizer_; }
  void expect_last_pass() override { sync_.expect_last_pass(); }
  void reduce() override { sync_.finish(); }
  const std::vector<bool>& present() const override { return sync_.present(); }
  Tensor sums() override { return changed_.defined() ? changed_ : sync_.reduced(); }
  // Copies unless sums are divided, since all ranks may share their memory.
  Tensor sums_to_change() override {
    if (!changed_.defined()) changed_ = sharded_ ? sync_.reduced() : sync_.reduced().clone();
    return changed_;
  }
  void clear() override {
    changed_ = {};
    sync_.clear();
  }

  // Makes the parts that other ranks have updated visible on this rank.
  void publish_updates() override {
    if (!sharded_) return;
    const FlatLayout& layout = parameters_.layout();
    if (common_) {
      comm_->barrier();
    } else {
      Communicator::Rows parts;
      for (int r = 0; r < comm_->size(); ++r) parts.push_back(layout.part(r, comm_->size()).size());
      const Range owned = sync_.owned();
      parameters_.flat().copy_from(comm_->all_gather_v(parameters_.flat().slice(owned.first, owned.last), parts));
    }
    parameters_.changed(layout.all());
  }

 private:
  FlatParameters lay_out(const FlatLayout& layout) {
    StorageHandle memory;
    if (sharded_ && layout.device() == Device::cpu)
      memory = comm_->allocate_common(static_cast<size_t>(layout.padded_size()) * size_of(layout.dtype()));
    common_ = static_cast<bool>(memory);
    if (!common_) return FlatParameters(layout);
    const auto in_common = [&](size_t) { return memory; };
    const bool first = comm_->rank().value == 0;  // rank 0 fills the memory for all
    if (!first) comm_->barrier();
    FlatParameters result(layout, in_common, first ? FlatMemory::Contents::zero : FlatMemory::Contents::kept);
    if (first) comm_->barrier();
    return result;
  }
  Combine combine_norms() {
    if (!sharded_) return {};
    return [this](Tensor& sums) { comm_->all_reduce(sums, sums); };
  }

  const std::shared_ptr<Communicator> comm_;
  const bool sharded_;
  bool common_ = false;  // the parameters of all ranks are in the same memory
  FlatParameters parameters_;
  GradientSync sync_;
  Optimizer optimizer_;
  Tensor changed_;  // the result of sums_to_change() in this step
};

DataParallel::DataParallel(const std::vector<ParameterGroup>& groups, Communicator& comm, Options options) {
  require(options.stage >= 0 && options.stage <= 2, "data parallel: there is no stage ", options.stage,
          " here; stage 3 is Sharded");
  for (BundlePlan& plan : plan_bundles("data parallel", groups, comm))
    add(std::make_unique<Replica>(std::move(plan), options));
}

GradientSync& DataParallel::sync(size_t bundle) { return static_cast<Replica&>(Trainer::bundle(bundle)).sync(); }

Tensor DataParallel::gradient(const Var& loss, const Parameter& wrt) {
  return loss.tape()->gradient(loss, {loss.tape()->watch(wrt)})[0].value();
}

// If ranks share the parameters' memory, rank 0 writes.
void DataParallel::set(const Parameter& parameter, const Tensor& whole) {
  auto& replica = static_cast<Replica&>(bundle(home_of(parameter).bundle));
  Tensor value = parameter.value;
  replica.comm().barrier();
  if (!replica.is_common() || replica.comm().rank().value == 0) value.copy_from(whole);
  replica.comm().barrier();
  replica.optimizer().adopt_values(parameter);
}

}  // namespace weft
