# SPDX-License-Identifier: Apache-2.0
"""An op of one's own: an all_gather whose backward returns only this rank's slot of its own cotangent, as libraries had it. Right
is a reduce_scatter, which adds up the cotangents of all ranks. Put it in place of own_slot, and the assertions fail."""
import numpy as np

import weft
from weft import collectives, ops


def gather(x, comm):
    me, rows = comm.rank(), comm.all_gather(x.value)

    def own_slot(g):
        return ops.slice(g, 0, me, me + 1)

    return collectives.with_placement(weft.record("gather", rows, [x], [own_slot]), comm, "replicated")


def gradient_of_row(comm):
    tape = weft.Tape()
    x = tape.watch(np.array([[comm.rank() + 1.0]]))
    loss = ops.sum(gather(x, comm)) * tape.constant(np.array(10.0**comm.rank()))
    (g,) = tape.gradient(loss, [x])
    weft.print_tapes(tape, comm)
    return g.item()


found = weft.run_ranks(3, gradient_of_row)
print(f"the rank's own loss only: {found}; right is [111, 111, 111]")
assert found == [1, 10, 100]
