# SPDX-License-Identifier: Apache-2.0
"""A rank's share of the mean of w * sample: its sum over the number of samples of all ranks, which are 1, 2 and 3 here. And the
usual mistake, a mean of means, which weighs a sample by how few its rank has."""
import numpy as np

import weft
from weft import collectives, ops

samples = np.arange(1.0, 7.0)


def gradients_of_w(comm):
    mine = np.split(samples, [1, 3])[comm.rank()]

    def gradient(loss):
        tape, w, found = weft.Tape(), weft.Parameter("w", 2.0), weft.Gradients()
        tape.backward(loss(tape.constant(mine), tape.watch(w)), found)
        return comm.all_reduce(found[w]).item()

    return (gradient(lambda x, w: collectives.share(ops.sum(x) * w, len(samples), comm)),
            gradient(lambda x, w: ops.mean(x) * w / comm.size()))


right, wrong = weft.run_ranks(3, gradients_of_w)[0]
print(f"shares: {right}\nmeans of means: {wrong}")
assert right == samples.mean() and wrong < 2.9
