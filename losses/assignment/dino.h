// SPDX-License-Identifier: Apache-2.0
#pragma once
// DINO: a student network predicts, from one view of a sample, the class distribution that a teacher network assigns to
// another view. The teacher's outputs are centered and sharpened, so that not all samples end in one class.
#include "weft/collectives/communicator.h"
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/module.h"

namespace weft {

struct DinoOptions {
  double teacher_temperature = 0.04;
  double student_temperature = 0.1;
  double center_momentum = 0.9;
};

// Outputs are (b, classes). The student sees all views, and the teacher the first few of them. With B samples on all
// ranks, temperatures Tt and Ts, and `pairs` the number of pairs of a teacher's view t and a student's view s != t, the
// whole loss is
//
//   1 / (B pairs) sum over samples, t and s != t of - softmax((teacher_t - center) / Tt) . log softmax(student_s / Ts)
//
// The teacher has no gradient. A call communicates only the counts of samples, `update` one all_reduce of classes + 1
// values.
class Dino final : public Module {
 public:
  Dino(const std::string& name, int64_t classes, const Init& init, const DinoOptions& options = {});

  // Returns this rank's share.
  Var operator()(const Vars& teacher, const Vars& student, const Pass& pass, Communicator& comm,
                 Site caller = Site::here());

  // Moves the center towards the mean of the teacher's outputs since the last update, over all passes, views and ranks;
  // call it after the passes of a training step. The ranks' sums are added in f64, by an all_reduce, so the center is
  // bit-identical on every rank, and the division of the batch changes only its rounding. Without samples it stays.
  void update(Communicator& comm, Site caller = Site::here());

  DinoOptions options;  // may change between steps, for example in a warm-up
  Parameter center;     // a buffer, initially zero

 private:
  void add_outputs(const Tensor& outputs);

  Tensor sum_;  // f64, of this rank's teacher outputs since the last update
  int64_t count_ = 0;
};

}  // namespace weft
