// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/support/on_each_device.h"
#include "weft/collectives/transports/self.h"
#include "weft/losses/common/adaptive_weight.h"
#include "weft/models/discriminator.h"

namespace weft {
namespace {

struct Trials : OnEachDevice {
  std::unique_ptr<Sequential> judge =
      patch_discriminator("judge", 1, 4, {.key = {3}, .dtype = DType::f64, .device = device});
  const Tensor images = random({3, 8, 8, 1}, 1), made = random({3, 8, 8, 1}, 2);
  static constexpr int64_t patches = 3 * 2 * 2;
  Communicator alone{connect_self()};
};

TEST_CASE_METHOD(Trials, "a discriminator scores every patch, and images do not affect one another") {
  const Var all = (*judge)(images);
  CHECK(all.shape() == Shape{3, 2, 2, 1});
  CHECK(values_of((*judge)(images.slice(1, 2))) == values_of(slice(all, 0, 1, 2)));
  CHECK((*judge)(images.slice(0, 0)).shape() == Shape{0, 2, 2, 1});
}

TEST_CASE_METHOD(Trials, "a trial's hinge loss and accuracy match their definitions") {
  const Trial trial(*judge, images, made, patches, alone);
  double hinge = 0, right = 0;
  for (const double x : values_of((*judge)(images))) hinge += std::max(0.0, 1 - x), right += x > 0;
  for (const double y : values_of((*judge)(made))) hinge += std::max(0.0, 1 + y), right += y < 0;
  CHECK(trial.hinge.value().item() == Approx(hinge / (2 * patches)));
  CHECK(trial.right.item() == right);
  CHECK((right > 0 && right < 2 * patches));
}

TEST_CASE_METHOD(Trials, "a trial's pull is the negated gradient of the mean score with respect to generated images") {
  const Trial trial(*judge, images, made, patches, alone);
  const Tensor direction = random(made.shape(), 3);
  const auto loss = [&](double by) { return mean(-(*judge)(Var(made) + Var(direction) * by)).value().item(); };
  CHECK(sum(Var(trial.pull) * direction).value().item() == Approx((loss(1e-5) - loss(-1e-5)) / 2e-5).epsilon(1e-6));
}

TEST_CASE_METHOD(Trials, "the gradient query for a trial's pull does not affect the backward that follows") {
  Trial trial(*judge, images, made, patches, alone);
  Gradients after;
  int64_t hooks = 0;
  after.after_accumulate([&](const Parameter&, const Tensor&) { ++hooks; });
  trial.tape.backward(trial.hinge, after);
  CHECK(hooks == static_cast<int64_t>(judge->parameters().size()));

  Tape tape;
  const Var of_real = (*judge)(tape.constant(images)), of_made = (*judge)(tape.constant(made));
  Gradients alone;
  tape.backward((sum(relu(1.0 - of_real)) + sum(relu(1.0 + of_made))) / (2.0 * patches), alone);
  for (const Parameter* p : judge->parameters()) CHECK(distance(after[*p], alone[*p]) < 1e-12);
}

TEST_CASE_METHOD(Trials, "the trials of a batch's parts add up to that of the whole batch") {
  const Trial whole(*judge, images, made, patches, alone);
  double hinge = 0, right = 0;
  for (const auto& [first, last] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 1}, {1, 3}}) {
    const Trial part(*judge, images.slice(first, last), made.slice(first, last), patches, alone);
    hinge += part.hinge.value().item();
    right += part.right.item();
    CHECK(distance(part.pull, whole.pull.slice(first, last)) < 1e-15);
  }
  CHECK(whole.hinge.value().item() == Approx(hinge));
  CHECK(whole.right.item() == right);
}

TEST_CASE_METHOD(OnEachDevice, "the adaptive weight scales one gradient to the size of another, within limits") {
  const Tensor five = f64({2}, {3, -4}), small = f64({1, 2}, {0, 0.01});
  CHECK(adaptive_weight(five, small).item() == Approx(5 / 0.0101));
  CHECK(adaptive_weight(small, five).item() == Approx(0.01 / 5.0001));
  CHECK(adaptive_weight(five, full({2}, 0)).item() == 1e4);
  CHECK(adaptive_weight(full({2}, 0), five).item() == 0);
  CHECK(std::isnan(adaptive_weight(f64({1}, {std::nan("")}), five).item()));
}

}  // namespace
}  // namespace weft
