// SPDX-License-Identifier: Apache-2.0
// CONTRIBUTING's recipe for a linear collective, applied by recipe.py: the files that it changes, and all that includes
// them. The new collective must meet its specification and finite differences, and one without one of its sides must be
// refused.
#include "tests/cases/collectives/collective_cases.cpp"
#include "weft/collectives/collectives.cpp"

#include <cstdio>

#include "tests/support/distributed_checks.h"

using namespace weft;

static const DistributedCase& case_of(const std::string& name) {
  for (const DistributedCase* c : DistributedCase::all())
    if (c->name == name) return *c;
  fail({"there is no case ", name});
}

static std::string refusal_of(const DistributedCase& c, int ranks) {
  try {
    run_ranks(ranks, [&](Communicator& comm) { check_gradients(c, comm); });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

int main() {
  for (const int ranks : {1, 2, 3, 5, 8})
    run_ranks(ranks, [](Communicator& comm) {
      check_specification(case_of("neighbor_sum"), comm);
      check_gradients(case_of("neighbor_sum"), comm);
    });
  require(refusal_of(case_of("wrong_neighbor_sum"), 3).find("its adjoint is not its transpose") != std::string::npos,
          "a collective without one of its sides is not refused");
  std::puts("the recipe works");
}
