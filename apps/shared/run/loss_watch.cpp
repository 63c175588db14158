// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/loss_watch.h"

#include "apps/shared/run/data_set.h"
#include "weft/engine/text/words.h"

namespace weft {

LossWatch::LossWatch(const Pictures& data, int64_t batch) : held_out_(every_nth(data.test, batch)) {}

std::vector<Measured> LossWatch::look(Run& run, std::optional<double> norm, const std::function<double()>& loss,
                                      std::vector<Measured> values) const {
  if (run.watches() && !held_out_.empty()) {
    const double validation = loss();
    values.push_back({loss_name, validation});
    run.show_beside_loss("validation", short_number(validation));
  }
  if (norm) {
    values.push_back({norm_name, *norm});
    run.show_beside_loss("gradient", short_number(*norm));
  }
  return values;
}

}  // namespace weft
