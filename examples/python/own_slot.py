# SPDX-License-Identifier: Apache-2.0
"""How much of its gradient NT-Xent loses by a gather that returns to a rank only what the rank's own loss says of its rows: the
length of what is left over that of the right gradient, and the cosine between them."""
import numpy as np

import weft
from weft import losses

views = [2 + np.random.default_rng(seed).normal(size=(24, 8)) for seed in (1, 2)]  # alike, as before training


def right_and_own(comm):
    me, ranks, tape = comm.rank(), comm.size(), weft.Tape()
    mine = slice(24 * me // ranks, 24 * (me + 1) // ranks)
    leaves = [tape.watch(view[mine]) for view in views]
    loss = losses.nt_xent(*leaves, comm, temperature=0.2)
    # With the seed 1 on one rank only, that rank's loss is the objective.
    seeded = [np.concatenate([g.numpy() for g in tape.gradient(loss, leaves, seed=np.array(float(one)))])
              for one in (True, *(r == me for r in range(ranks)))]
    return seeded[0], seeded[1 + me]


for ranks in (1, 2, 3, 8):
    right, own = (np.concatenate(each).ravel() for each in zip(*weft.run_ranks(ranks, right_and_own)))
    length, cosine = np.linalg.norm(own) / np.linalg.norm(right), own @ right / np.linalg.norm(own) / np.linalg.norm(right)
    print(f"{ranks} ranks: length {length:.3f}, cosine {cosine:.3f}")
    assert (length == 1) == (ranks == 1)
