#pragma once
#include "collectives/communicator.h"
#include "engine/nn/init.h"
#include "engine/nn/module.h"

namespace weft {

struct DinoOptions {
  double teacher_temperature = 0.04;
  double student_temperature = 0.1;
  double center_momentum = 0.9;
};

// DINO: a teacher's opinion of a sample, centered and sharpened, is predicted by a student from each other view. With
// outputs (b, classes), T views of the teacher, S of the student, of which the first T are the same, and B samples, the
// whole loss is
//
//   1 / (B pairs) sum over samples, t and s != t of - softmax((teacher_t - center) / Tt) . log softmax(student_s / Ts)
//
// The teacher has no gradient. Ranks meet for the counts of samples, and in `update`: all_reduce of classes + 1 values.
class Dino final : public Module {
 public:
  Dino(const std::string& name, int64_t classes, const Init& init, const DinoOptions& options = {});

  // This rank's share.
  Var operator()(const Vars& teacher, const Vars& student, const Pass& pass, Communicator& comm,
                 Site caller = Site::here());

  // After the passes of a training step: moves the center towards the mean of what the teacher said in all of them, on
  // all ranks, in all views. Ranks' sums are added in f64, rank 0 first: the center has the same bits on every rank,
  // and how the batch is divided changes it by rounding alone. Where there was nothing, it stays.
  void update(Communicator& comm, Site caller = Site::here());

  DinoOptions options;  // which may change between steps, such as in a warm-up
  Parameter center;     // a buffer; zero at first

 private:
  void remember(const Tensor& outputs);

  Tensor sum_;  // f64, of this rank's teacher outputs since the last update
  int64_t count_ = 0;
};

}  // namespace weft
