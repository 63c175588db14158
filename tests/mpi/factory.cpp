// SPDX-License-Identifier: Apache-2.0
// Which transport a session gets for a name, and the errors for bad names, under mpiexec.
#include <cstdio>
#include <cstdlib>

#include "tests/collectives/transport_checks.h"
#include "weft/collectives/transports/factory.h"

using namespace weft;

namespace {

// The description of the named transport after some work, or the error of connecting.
std::string connected(Session& session, const char* name) try {
  setenv("WEFT_TRANSPORT", name, 1);
  const auto group = connect(session);
  checks::all_see_all(*group, 1000, 10);
  checks::all_sum(*group, 10'000, true);
  return group->description();
} catch (const Error& error) {
  return error.what();
}

int body(Session& session) {
  const auto expect = [&](const char* name, std::initializer_list<std::string> any_of) {
    const std::string said = connected(session, name);
    for (const std::string& expected : any_of)
      if (said.find(expected) != std::string::npos) return;
    fail({"WEFT_TRANSPORT=", name, " gave: ", said});
  };
  const bool alone = session.size() == 1;
  const std::string shared = alone ? "self (1 rank)" : "shared memory (" + text(session.size()) + " ranks)";
  expect("shared", {shared});
  expect("", {shared, "over " + shared});
  expect("self", {alone ? shared : "WEFT_TRANSPORT=self: the session has " + text(session.size()) + " ranks"});
  expect("mpi", {"mpi (" + text(session.size())});
  expect("nodes", {alone ? "mpi (1 rank)" : "mpi (" + text(session.size()) + " ranks) on 1 node"});
  expect("pigeon", {"WEFT_TRANSPORT=pigeon: there are self, shared, mpi, nodes and nccl"});
  expect("nccl", {"WEFT_TRANSPORT=nccl: this program was built without NCCL", "WEFT_TRANSPORT=nccl: rank 0 has no card",
                  "WEFT_TRANSPORT=nccl: ranks 0 and 1 share a card", "over " + shared});
  const std::string nccl = connected(session, "nccl");
  setenv("WEFT_TRANSPORT", "", 1);
  if (session.rank() == 0)
    std::printf("%s; asked for NCCL: %s\n", description(*session.connect_hosts()).c_str(), nccl.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_session(argc, argv, body); }
