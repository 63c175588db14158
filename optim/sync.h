#pragma once
// The gradients of several ranks, summed. Backward passes add up what this rank contributes, any number of them and
// over any parameters; the sums over ranks are made from that, in buckets, and kept apart from it, so no term can enter
// a sum twice.
//
//   tape.backward(loss, sync.gradients());     as often as wanted, not equally often on all ranks
//   sync.finish();                             on every rank: sync.reduced() and sync.present() are valid now
//   ...
//   sync.clear();                              the next step begins
#include "optim/buckets.h"
#include "optim/summed_ranks.h"

namespace weft {

class GradientSync {
 public:
  // When reductions begin. Results are the same, to the bit, whenever it is. During a pass a bucket goes as soon as it
  // has what it got in the pass before; what comes after that makes another reduction of it. No more than 256 go in a
  // step before its end.
  enum class When : uint8_t {
    at_finish,
    in_last_pass,   // during the backward that expect_last_pass() has announced
    in_every_pass,  // during each
  };
  struct Options {
    When when = When::at_finish;
    int64_t bucket = int64_t{1} << 20;  // elements
    bool sharded = false;               // this rank gets its part of the sums, part(rank, ranks) of the layout
    // Local gradients are given up as they are reduced, bucket by bucket. What comes for a bucket later is reduced by
    // itself and added: the one case where the order of additions depends on `when`.
    bool frees = false;
  };
  // Parameters of one dtype and device, the same on all ranks.
  GradientSync(const FlatLayout& layout, Communicator& comm, Options options);
  GradientSync(const FlatLayout& layout, Communicator& comm) : GradientSync(layout, comm, Options()) {}

  Gradients& gradients() { return buckets_.gradients(); }
  void expect_last_pass();  // the coming backward is this rank's last before finish()

  void finish();
  // The sums, of the owned range; for bf16 parameters in f32. A parameter that no rank used is not present; one that
  // only others used has contributed zeros.
  const Tensor& reduced() const { return reduced_; }
  const std::vector<bool>& present() const { return present_; }  // by place
  Range owned() const { return owned_; }
  void clear();  // on every rank, whether or not the step was finished

  // Before: what this rank brings to a reduction of these elements. After: the sums that this rank gets.
  using Hook = std::function<void(Range elements, const Tensor& values)>;
  HookHandle before_reduce(Hook hook) { return before_.add(std::move(hook)); }
  HookHandle after_reduce(Hook hook) { return after_.add(std::move(hook)); }

 private:
  void start_pass();
  void end_pass();
  bool may_start() const;
  void start_complete_ones();
  void start_next();
  void collect_ready_ones();
  void catch_up();
  Tensor local(int64_t bucket);
  Rows rows(Range range) const;
  void receive(int64_t bucket, const Tensor& sum);
  void reduce(int64_t bucket);
  void reduced_is_known(int64_t bucket);
  void exchange_states();
  const uint8_t* states_of(int rank) const;
  int64_t position_of(int rank) const;
  int64_t starts(int64_t bucket, int64_t position) const;
  bool must_be_reduced(int64_t bucket) const;
  bool anyone_has(int64_t bucket) const;
  Tensor part(int64_t bucket) const;  // of the reduced values

  // Groups of their own, since ranks may start reductions between different collectives of their losses, and begin to
  // finish after different numbers of them.
  const std::unique_ptr<Communicator> comm_, control_;
  const Options options_;
  const Range owned_;
  Buckets buckets_;
  SummedRanks summed_;
  Tensor reduced_;
  std::vector<bool> present_, filled_;  // by place, by bucket
  bool overlapping_ = false;            // in a pass during which reductions start
  int64_t position_ = 0;                // reductions started in this step, in the order of the buckets, round by round
  std::vector<Pending> started_;        // those
  size_t collected_ = 0;                // of those, the first ones: their sums are received
  Tensor states_;                       // what every rank says of its buckets
  bool finished_ = false;
  Hooks<Range, const Tensor&> before_, after_;
};

}  // namespace weft
