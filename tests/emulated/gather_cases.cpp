// SPDX-License-Identifier: Apache-2.0
// Emulated collectives are no losses: their values, and the gradient of the one adjoint that is right.
#include "tests/cases/collectives/case_rows.h"
#include "tests/cases/collectives/collective_case.h"
#include "tests/emulated/gather.h"

namespace weft {
namespace {

using namespace case_rows;
using Values = DistributedCase::Values;

std::vector<Shape> uneven_matrix(int rank, int) { return {{uneven(rank), 3}}; }

Values joined_everywhere(const Values& in) {
  std::vector<double> all;
  for (const auto& of_rank : in) all.insert(all.end(), of_rank.begin(), of_rank.end());
  return Values(in.size(), all);
}
Values summed_everywhere(const Values& in) {
  std::vector<double> sum(in[0].size());
  for (const auto& of_rank : in)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += of_rank[i];
  return Values(in.size(), sum);
}

const DistributedCase emulated_cases[] = {
    {"emulated gather with its adjoint", uneven_matrix,
     [](auto x, auto& comm) { return emulated::gather(x[0], uneven_of(comm.size()), emulated::Adjoint::sum, comm); },
     joined_everywhere, -1, 1, 1},
    {"emulated raw all_reduce", matrix, [](auto x, auto& comm) { return emulated::raw_all_reduce(x[0], comm); },
     summed_everywhere, -1, 1, 0},
};

}  // namespace
}  // namespace weft
