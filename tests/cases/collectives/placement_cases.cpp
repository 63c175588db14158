// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/collectives/case_rows.h"
#include "tests/cases/collectives/collective_case.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"

namespace weft {
namespace {

Rows equal_rows(const Communicator& comm, int64_t each) { return Rows(static_cast<size_t>(comm.size()), each); }

// Invariant values have equal cotangents, which an inner product over ranks would count once per rank. So the cases end
// in values that are not Invariant.
using namespace case_rows;
const DistributedCase placement_cases[] = {
    {"all_reduce_equal and vary", matrix, [](auto x, auto& comm) { return vary(all_reduce_equal(x[0], comm), comm); }},
    {"vary before use by each rank alone", matrix,
     [](auto x, auto& comm) { return vary(square(all_reduce_equal(x[0], comm)), comm) * x[0]; }},
    {"all_gather_equal and own_rows", matrix,
     [](auto x, auto& comm) {
       const Rows rows = equal_rows(comm, 2);
       return own_rows(square(all_gather_equal(x[0], rows, comm)), rows, comm);
     }},
    {"own_rows of a Replicated value, padded_rows", blocks,
     [](auto x, auto& comm) {
       const Rows rows = equal_rows(comm, 2);
       return all_reduce(padded_rows(square(own_rows(all_reduce(x[0], comm), rows, comm)), rows, comm), comm);
     }},
    {"as_partial, as_varying, as_replicated", matrix,
     [](auto x, auto& comm) {
       const Tensor two = Tensor::full({2, 3}, 2, DType::f64, x[0].device());
       return as_varying(as_replicated(all_reduce(as_partial(x[0], comm), comm) * two, comm), comm) * x[0];
     }},
    {"keep_on and as_invariant", matrix,
     [](auto x, auto& comm) {
       const Var all = as_invariant(all_reduce(x[0], comm), comm);
       return all_reduce(keep_on(square(all), {comm.size() - 1}, comm), comm);
     }},
    {"keep_on", matrix,
     [](auto x, auto& comm) { return all_reduce(keep_on(all_reduce(x[0], comm), {comm.size() - 1}, comm), comm); }},
};

}  // namespace
}  // namespace weft
