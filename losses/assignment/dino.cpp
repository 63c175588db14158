// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/assignment/dino.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/assignment/swapped_prediction.h"
#include "weft/losses/common/division.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/precision.h"

namespace weft {

Dino::Dino(const std::string& name, int64_t classes, const Init& init, const DinoOptions& options)
    : options(options), center(name + ".center", precise(init.full({classes}, 0)).value()) {
  register_buffer(center);
}

Var Dino::operator()(const Vars& teacher, const Vars& student, const Pass& pass, Communicator& comm, Site caller) try {
  const Site site = LossCall("Dino", caller)
                        .positive("teacher temperature", options.teacher_temperature)
                        .positive("student temperature", options.student_temperature);
  require(!teacher.empty() && !student.empty(), teacher.size(), " views of the teacher and ", student.size(),
          " of the student");
  const Division division(student[0].shape()[0], comm, site);
  std::vector<Tensor> targets;
  for (const Var& view : teacher) {
    const Var outputs = precise(view.value());
    require(outputs.shape().rank() == 2 && outputs.shape()[1] == center.value.size(), "the center has ",
            center.value.size(), " classes, the teacher's outputs are ", outputs.shape());
    targets.push_back(softmax(sub_along(outputs, center.value, -1) / options.teacher_temperature).value());
  }
  Vars predictions;
  for (const Var& view : student) predictions.push_back(precise(view) / options.student_temperature);
  const int64_t pairs = swapped_pairs(targets.size(), predictions.size());
  const Var sum = swapped_cross_entropy(targets, predictions);
  if (pass.training && !(student[0].tape() && student[0].tape()->recomputing()))
    for (const Var& view : teacher) add_outputs(detach(view).value());
  return share(sum, division.total * pairs, comm);
} catch (Error& error) {
  fail_in("Dino", caller, error);
}

void Dino::add_outputs(const Tensor& outputs) {
  const Var added = cast(sum(precise(outputs), 0), DType::f64);
  sum_ = count_ == 0 ? added.value() : (added + sum_).value();
  count_ += outputs.shape()[0];
}

void Dino::update(Communicator& comm, Site caller) try {
  const Site site = LossCall("Dino", caller).number("center momentum", options.center_momentum);
  const int64_t classes = center.value.size();
  const Tensor zeros = Tensor::zeros({classes}, DType::f64, center.value.device()),
               count = Tensor::full({1}, static_cast<double>(count_), DType::f64, zeros.device());
  const Tensor all = comm.all_reduce(concat({count_ == 0 ? zeros : sum_, count}, 0).value(), ReduceOp::sum, site);
  count_ = 0;
  const double total = all.slice(classes, classes + 1).item();
  if (total == 0) return;
  const Var before = center.value.to(DType::f64), outputs = all.slice(0, classes);
  center.value = (before * options.center_momentum + outputs * ((1 - options.center_momentum) / total))
                     .value()
                     .to(center.value.dtype());
} catch (Error& error) {
  fail_in("Dino", caller, error);
}

}  // namespace weft
