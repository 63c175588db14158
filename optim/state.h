#pragma once
// What a training has come to, as named tensors that are whole and do not depend on the number of ranks, nor on how
// they divide the state, or layers (group_placement.h): parameters, each one's number of steps and what the optimizer
// keeps for it, averages, buffers.
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
// Files are the root's alone: no other rank needs the folder, and all go on from the same file. Tensors travel one by
// one, so no rank holds more than one whole beside what it has; the root, where layers are divided, a few copies of it.
// Both are for the time between two steps: gradients that wait for a step are not part of the state.
//
// What is loaded has the bits of what was saved, on any number of ranks and at any stage. On as many ranks, training
// goes on to the bits that it would have had. On another number the samples of a step are divided otherwise, and sums
// over ranks of sums over samples agree to rounding only.
#include <set>

#include "collectives/communicator.h"
#include "engine/named.h"
#include "optim/average.h"
#include "optim/trainer.h"

namespace weft {

class TrainingState {
 public:
  // All calls are made on every rank, in the same order.
  explicit TrainingState(Communicator& comm, GroupRank root = {0}) : comm_(comm), root_(root) {}

  // What is added must outlive this object.
  void add(Trainer& training);
  // With the average of the optimizer's owned range, if there is one.
  void add(Optimizer& optimizer, WeightAverage* average = nullptr);
  // What all ranks have, and have equal: buffers, parameters that are not trained.
  void add(const std::vector<Parameter*>& equal);

  const std::vector<TensorOutline>& tensors() const { return tensors_; }

  // Calls `write` on the root, which gets whole tensors as it asks for them. An error in it is thrown on every rank.
  void save(const std::function<void(const TensorSource& get)>& write);
  // Calls `read` on the root, which puts in all tensors, or none if there is nothing to go on from. What it returns, or
  // throws, every rank does.
  Metadata load(const std::function<Metadata(const TensorSink& put)>& read);

 private:
  // What this rank has of a tensor.
  struct Part {
    Parameter* parameter;  // whose value it is, or else
    Tensor values;
    Range held;                                       // elements of the tensor, or of this rank's slice of it
    std::shared_ptr<const GroupPlacement> placement;  // null: it is not sliced among these ranks
    std::vector<Range> given = {};                    // by rank: what it gives to the whole; none: every rank has all
    std::vector<int64_t> slices = {};                 // by rank: of which slice
    bool once = true;                                 // what is held is given
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
  void spread(size_t tensor, const Tensor& whole);
  int64_t agree_on(int64_t tensor);
  void follow_root(const std::function<void()>& lead, const std::function<void(size_t tensor)>& join);
  std::string from_root(const std::string& text);

  Communicator& comm_;
  const GroupRank root_;
  std::vector<TensorOutline> tensors_;
  std::vector<Part> parts_;    // of the tensors
  std::vector<Count> counts_;  // of steps, in tensors of one element
  std::set<std::string> names_;
};

}  // namespace weft
