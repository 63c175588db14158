// SPDX-License-Identifier: Apache-2.0
#pragma once
// Losses that are functions of statistics of the whole batch, such as a mean or a covariance. They are computed of any
// sample: of all ranks' rows they are the truth, of a rank's own ones they are what it has without communication.
#include "tools/weft/truth/truth.h"

namespace weft::verify {

const std::vector<Loss>& losses_of_statistics();

}  // namespace weft::verify
