// SPDX-License-Identifier: Apache-2.0
// Random steps of gradient sums on processes, which wait for each other differently from threads: through shared memory
// and by messages. equal_to_one_process checks that training gives the same weights as on threads.
#include <cstdio>

#include "tests/support/random_steps.h"
#include "weft/collectives/transports/session.h"

using namespace weft;

namespace {

constexpr unsigned programs = 20;

int body(Session& session) {
  Communicator comm(session.connect_hosts());
  for (unsigned seed = 0; seed < programs; ++seed) {
    RandomProgram program(seed, comm);
    for (int step = 0; step < 4; ++step) program.step();
  }
  if (session.rank() == 0) std::printf("%u random programs hold on %s\n", programs, comm.description().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_session(argc, argv, body); }
