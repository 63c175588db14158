// SPDX-License-Identifier: Apache-2.0
// The losses that train_contrastive offers by name.
#include "apps/shared/choices/named_loss.h"
#include "tests/support/uneven_rows.h"
#include "weft/collectives/transports/self.h"

namespace weft {
namespace {

TEST_CASE("every named loss and its gradient equal those of the whole batch for any division") {
  on_ranks([](Communicator& comm) {
    Communicator alone(connect_self());
    int64_t before = 0;
    for (int r = 0; r < number(comm); ++r) before += rows_on(r);
    for (const std::string& name : names_of_losses()) {
      const auto loss_of = [&](const Var& first, const Var& second, Communicator& group) {
        return loss_named(name).share(first, second, 0.3, {4}, group);
      };
      Tape tape, whole_tape;
      const Var first = tape.watch(part(number(comm), {6}, 1)), second = tape.watch(part(number(comm), {6}, 2));
      const Var all_first = whole_tape.watch(whole(comm, {6}, 1)), all_second = whole_tape.watch(whole(comm, {6}, 2));
      const Var share = loss_of(first, second, comm), expected = loss_of(all_first, all_second, alone);
      expect_close(comm.all_reduce(share.value()), expected.value());
      const auto mine = tape.gradient(share, {first, second}),
                 all = whole_tape.gradient(expected, {all_first, all_second});
      for (const size_t view : {0, 1})
        expect_close(mine[view], slice(all[view], 0, before, before + rows_on(number(comm))));
    }
  });
}

TEST_CASE("an unknown loss name is refused") {
  expect_refusal([] { loss_named("nt-xnt"); }, {"none called 'nt-xnt'"});
}

}  // namespace
}  // namespace weft
