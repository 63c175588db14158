// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums gradients over ranks. Any number of backward passes over any parameters accumulate this rank's gradients. The
// sums over ranks are reduced from them in buckets and stored separately, so that no term enters a sum twice.
//
//   tape.backward(loss, sync.gradients());     any number of times, which may differ between ranks
//   sync.finish();                             on every rank; then sync.reduced() and sync.present() are valid
//   ...
//   sync.clear();                              begins the next step
#include <array>
#include <optional>

#include "weft/optim/parallel/buckets.h"
#include "weft/optim/parallel/summed_ranks.h"

namespace weft {

class GradientSync {
 public:
  // When reductions start. Results are bit-identical for all choices. During a pass, the reduction of a bucket starts
  // as soon as the bucket has the gradients that it had in the previous pass; later gradients cause another reduction.
  // At most 256 reductions start before the end of a step.
  enum class When : uint8_t {
    at_finish,
    in_last_pass,   // during the backward that expect_last_pass() announces
    in_every_pass,  // during every backward
  };
  struct Options {
    When when = When::at_finish;
    int64_t bucket = int64_t{1} << 20;  // elements
    bool sharded = false;               // this rank gets only its part of the sums, part(rank, ranks) of the layout
    // Frees local gradients as they are reduced, bucket by bucket. Later gradients of a bucket are reduced separately
    // and added, so that the order of additions depends on `when`, in this case only.
    bool frees = false;
  };
  // Parameters must have one dtype and device, the same on all ranks.
  GradientSync(const FlatLayout& layout, Communicator& comm, Options options);
  GradientSync(const FlatLayout& layout, Communicator& comm) : GradientSync(layout, comm, Options()) {}

  Gradients& gradients() { return buckets_.gradients(); }
  void expect_last_pass();  // the coming backward is this rank's last before finish()

  void finish();
  // The sums in the owned range, until clear(); f32 for bf16 parameters. A parameter that no rank used is not present;
  // ranks that did not use a present one have contributed zeros.
  const Tensor& reduced() const { return reduced_; }
  const std::vector<bool>& present() const { return present_; }  // by place
  Range owned() const { return owned_; }
  void clear();  // on every rank, whether or not the step was finished

  // Hooks before a reduction get this rank's contribution to these elements, hooks after it the sums that this rank
  // gets.
  using Hook = std::function<void(Range elements, const Tensor& values)>;
  HookHandle before_reduce(Hook hook) { return before_.add(std::move(hook)); }
  HookHandle after_reduce(Hook hook) { return after_.add(std::move(hook)); }

 private:
  void start_pass();
  void end_pass();
  bool may_start() const;
  void start_complete_buckets();
  void start_next();
  void go_on();
  void start_gather();
  bool gathers() const { return !options_.sharded && !options_.frees; }  // the parts that ranks get of the sums
  void collect_ready();
  void catch_up();
  void forget_started();
  Tensor local(int64_t bucket);
  Rows rows(Range range) const;  // of which each rank gets the sums from a reduce_scatter
  void receive(int64_t bucket, const Tensor& sum);
  void reduce(int64_t bucket);
  void report_reduced(int64_t bucket);
  void exchange_states();
  const uint8_t* states_of(int rank) const;
  std::array<int64_t, 2> started_by(int rank) const;
  int64_t starts(int64_t bucket, int64_t position) const;
  bool must_be_reduced(int64_t bucket) const;
  bool any_rank_has(int64_t bucket) const;
  Tensor part(int64_t bucket) const;  // of the reduced values

  // Separate groups, because ranks may start reductions between different collectives of their losses, gather parts of
  // sums after different numbers of reductions, and call finish() after different numbers of both.
  const std::unique_ptr<Communicator> comm_, gathering_, control_;
  const Options options_;
  const Range owned_;
  Buckets buckets_;
  SummedRanks summed_;
  Tensor reduced_;
  std::vector<bool> present_;     // by place
  std::vector<bool> filled_;      // by bucket: reduced_ has a sum of it
  bool overlapping_ = false;      // reductions start during this pass
  int64_t position_ = 0;          // the number of reductions started in this step, in rounds over the buckets in order
  std::vector<Pending> started_;  // the reductions started in this step
  std::vector<std::optional<Pending>> gathers_;  // of those that have ended, from the first on
  size_t collected_ = 0;                         // how many reductions have given their sums; they are the first ones
  Tensor states_;                                // the state of every rank, see exchange_states()
  bool finished_ = false;
  Hooks<Range, const Tensor&> before_, after_;
};

}  // namespace weft
