#pragma once
// The local gradients of one rank on their way to a reduction: in flat memory, in buckets of whole parameters, each of
// which is reduced at once. A bucket notes what it has got since it was last reduced.
#include "collectives/communicator.h"
#include "optim/flat.h"

namespace weft {

class Buckets {
 public:
  // At least so many elements in each but the first of them. `keep` says whether a bucket's memory stays when it is
  // taken, or goes along.
  enum class Keep : uint8_t { memory, nothing };
  Buckets(const FlatLayout& layout, int64_t elements, Communicator& comm, Keep keep);

  int64_t count() const { return static_cast<int64_t>(buckets_.size()); }
  // In the order in which backward completes them: the last parameters first.
  Range range(int64_t bucket) const { return at(bucket).range; }
  const FlatLayout& layout() const { return layout_; }
  Gradients& gradients() { return gradients_; }

  bool has(int64_t place) const { return present_[static_cast<size_t>(place)]; }  // a gradient, in this step
  bool changed(int64_t bucket) const;                                             // since it was last taken
  // Whether every parameter of it that came in the pass before has come in this one; for a bucket of which none came,
  // those of the next that had some. Only a guess that no more will, as good as passes are alike: what comes later
  // changes the bucket again.
  bool complete(int64_t bucket) const;
  void start_pass();
  void arrived(const Parameter& parameter);

  // Its gradients so far, zeros for parameters that have none here, for a reduction.
  Tensor take(int64_t bucket);
  void clear();  // for the next step

 private:
  struct Bucket {
    Range range;
    int64_t first_place, last_place;  // the latter is not in it
    Tensor memory;
    int64_t expected = 0, missing = 0;  // parameters in this pass: in all, and yet to come
    uint32_t taken = 0;                 // the memory's version when it was last taken
  };
  Bucket& at(int64_t bucket) { return buckets_[static_cast<size_t>(bucket)]; }
  const Bucket& at(int64_t bucket) const { return buckets_[static_cast<size_t>(bucket)]; }
  Tensor place_for(const Parameter& parameter);
  Tensor view(Bucket& bucket, int64_t place);

  FlatLayout layout_;
  Communicator& comm_;
  const bool keeps_memory_;
  std::vector<Bucket> buckets_;
  std::vector<int64_t> bucket_of_;  // by place
  std::vector<bool> present_;       // by place
  std::vector<bool> expected_;      // by place: came in the pass before; all, if there was none
  std::vector<bool> came_;          // by place, in this pass
  Gradients gradients_;
};

}  // namespace weft
