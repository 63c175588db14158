// SPDX-License-Identifier: Apache-2.0
// Training that stops and resumes, under mpiexec.
#include <cstdio>

#include "tests/support/scratch_folder.h"
#include "tests/training/resume_run.h"
#include "weft/collectives/transports/session.h"

using namespace weft;

namespace {

// Only the root uses the folder.
int body(Session& session) {
  Communicator comm(session.connect_hosts());
  const ScratchFolder folder;
  for (int stage = 0; stage <= 3; ++stage)
    for (const DType dtype : {DType::f32, DType::bf16})
      expect_undisturbed(comm, {stage, dtype}, 5, folder / (std::to_string(stage) + text(dtype)));
  if (session.rank() == 0) std::printf("training went on at all stages on %d processes\n", comm.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_session(argc, argv, body); }
