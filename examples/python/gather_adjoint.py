# SPDX-License-Identifier: Apache-2.0
"""The gradient of an all_gather is a reduce_scatter. Rank r's loss is 10^r times the sum of all rows, so the digits of a gradient
tell whose losses it has: 111 with the all_gather, 1, 10 and 100 if the others' rows are constants."""
import numpy as np

import weft
from weft import collectives, ops


def gradients_of_row(comm):
    me, row = comm.rank(), np.array([[comm.rank() + 1.0]])

    def gradient(title, gathered):
        tape = weft.Tape()
        x = tape.watch(row)
        (g,) = tape.gradient(ops.sum(gathered(x)) * tape.constant(np.array(10.0**me)), [x])
        print(title, end="") if me == 0 else None
        weft.print_tapes(tape, comm)
        return g.item()

    others = comm.all_gather(row).numpy()
    return (gradient("With the all_gather:\n", lambda x: collectives.all_gather(x, comm)),
            gradient("\nWith the others' rows as constants:\n", lambda x: ops.concat([others[:me], x, others[me + 1:]], 0)))


right, wrong = zip(*weft.run_ranks(3, gradients_of_row))
assert right == (111, 111, 111) and wrong == (1, 10, 100)
