// SPDX-License-Identifier: Apache-2.0
#pragma once
// Buckets of one rank's local gradients. A bucket is flat memory for a few whole parameters, which one collective
// reduces. It records whether its gradients have changed since the last reduction.
#include "weft/collectives/communicator.h"
#include "weft/optim/flat.h"

namespace weft {

class Buckets {
 public:
  // Every bucket has at least `elements` elements, except the one of the first parameters. `keep` says whether take()
  // keeps a bucket's memory or moves it out.
  enum class Keep : uint8_t { memory, nothing };
  Buckets(const FlatLayout& layout, int64_t elements, Communicator& comm, Keep keep);

  // Keeps all gradients in this memory, which has the layout. To be called before any arrives.
  void keep_in(Tensor memory);

  int64_t count() const { return static_cast<int64_t>(buckets_.size()); }
  // Buckets are in the order in which backward completes them: the last parameters first.
  Range range(int64_t bucket) const { return at(bucket).range; }
  const FlatLayout& layout() const { return layout_; }
  Gradients& gradients() { return gradients_; }

  bool has(int64_t place) const { return present_[static_cast<size_t>(place)]; }  // whether this step has a gradient
  bool changed(int64_t bucket) const;                                             // since the last take()
  // Predicts whether the bucket gets no more gradients in this pass: every parameter of it that had one in the previous
  // pass has one in this pass. A bucket without any in the previous pass follows the next bucket that had some. If the
  // prediction is wrong, a later gradient changes the bucket again.
  bool complete(int64_t bucket) const;
  void start_pass();
  void arrived(const Parameter& parameter);  // records that a parameter has a gradient in this pass

  // Returns the bucket's gradients so far, for a reduction; zeros for parameters without a gradient.
  Tensor take(int64_t bucket);
  void clear();  // prepares for the next step

 private:
  struct Bucket {
    Range range;
    int64_t first_place, last_place;  // last_place is the end, which the bucket does not include
    Tensor memory;
    int64_t expected = 0, missing = 0;  // parameters in this pass: all expected ones, and those still missing
    uint32_t taken = 0;                 // the memory's version at the last take()
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
  std::vector<bool> present_;       // by place: has a gradient in this step
  std::vector<bool> expected_;      // by place: had one in the previous pass; initially all
  std::vector<bool> arrived_;       // by place: has one in this pass
  Gradients gradients_;
};

}  // namespace weft
