// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state of a training as named tensors: parameters, the number of steps and the optimizer's state of each, averages
// and buffers. The tensors are whole: they do not depend on the number of ranks, nor on how ranks divide the state or
// layers (collectives/sharding.h).
//
//   TrainingState state(comm);
//   state.add(training);  // of DataParallel or Sharded; or an Optimizer by itself
//   state.add(network.buffers());
//   ...
//   const Metadata saved = state.load([&](const TensorSink& put) -> Metadata {
//     const Latest latest = latest_checkpoint("run");
//     if (!latest.file) return {};
//     load_checkpoint(*latest.file, state.tensors(), put);
//     return latest.file->metadata();
//   });
//   ...
//   const Metadata words = {{"data", batches.position()}, {"seed", "1"}};
//   state.save([&](const TensorSource& get) { save_checkpoint("run", step, state.tensors(), get, words); });
//
// Only the root accesses files, so no other rank needs the folder, and all ranks resume from the same file. Tensors are
// communicated one by one, so a rank holds at most one whole tensor besides its own state; if layers are divided, the
// root holds a few copies of it. Save and load between two steps: accumulated gradients are not part of the state.
//
// Loaded values are bit-identical to those saved, on any number of ranks and at any stage. On the same number of ranks,
// a resumed training is bit-identical to an uninterrupted one. On another number, the samples of a step are divided
// differently, and sums over ranks agree up to rounding.
#include <set>

#include "weft/collectives/communicator.h"
#include "weft/engine/tensor/named_tensor.h"
#include "weft/optim/average.h"
#include "weft/optim/parallel/trainer.h"

namespace weft {

class TrainingState {
 public:
  // All calls are made on every rank, in the same order.
  explicit TrainingState(Communicator& comm, GroupRank root = {0}) : comm_(comm), root_(root) {}

  // The arguments of `add` must outlive this object.
  void add(Trainer& training);
  // `average`, if any, is the average of the range that the optimizer owns.
  void add(Optimizer& optimizer, WeightAverage* average = nullptr);
  // For values that are equal on all ranks: buffers, and parameters that are not trained.
  void add(const std::vector<Parameter*>& equal);

  const std::vector<TensorOutline>& tensors() const { return tensors_; }

  // Calls `write` on the root, which requests whole tensors by `get`. If it throws an error, every rank throws it.
  void save(const std::function<void(const TensorSource& get)>& write);
  // Calls `read` on the root, which must `put` all tensors, or none if there is nothing to resume from. Every rank
  // returns what `read` returns, or throws its error.
  Metadata load(const std::function<Metadata(const TensorSink& put)>& read);

 private:
  // This rank's part of a tensor.
  struct Part {
    Parameter* parameter;  // the part is the value of this parameter or, if null, `values`
    Tensor values;
    Range held;                                // elements of the tensor, or of this rank's slice of it
    std::shared_ptr<const Sharding> sharding;  // null if these ranks do not slice the tensor
    std::vector<Range> given = {};             // by rank: the range it contributes; empty if every rank has everything
    std::vector<int64_t> slices = {};          // by rank: the slice that it contributes to
    bool once = true;                          // every rank contributes all that it holds
    Tensor flat() const { return parameter ? parameter->value.reshape({parameter->value.size()}) : values; }
  };
  struct Count {
    Optimizer* optimizer;
    const Parameter* parameter;
    size_t tensor;
  };

  void add(const std::string& name, const Shape& shape, Part part);
  void agree_on_parts(size_t first);
  Tensor joined(size_t tensor, const Tensor& pieces) const;
  bool is_root() const { return comm_.rank() == root_; }
  Tensor gather(size_t tensor);
  void scatter(size_t tensor, const Tensor& whole);
  int64_t agree_on(int64_t tensor);
  void follow_root(const std::function<void()>& lead, const std::function<void(size_t tensor)>& join);
  std::string from_root(const std::string& text);

  Communicator& comm_;
  const GroupRank root_;
  std::vector<TensorOutline> tensors_;
  std::vector<Part> parts_;    // by tensor
  std::vector<Count> counts_;  // numbers of steps, each a tensor of one element
  std::set<std::string> names_;
};

}  // namespace weft
