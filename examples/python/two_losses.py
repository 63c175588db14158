# SPDX-License-Identifier: Apache-2.0
"""Two losses before one step, each with its own tape and backward. Gradients are a value to which each backward adds, and the sum
over ranks is taken once."""
import numpy as np

import weft
from weft import collectives, ops


def gradient(comm, apart):
    w, x, gradients = weft.Parameter("w", [0.5, -1.0, 2.0]), np.full(3, comm.rank() + 1.0), weft.Gradients()
    errors = lambda tape: collectives.share(ops.sum(ops.square(tape.watch(w) - tape.constant(x))), comm.size(), comm)
    products = lambda tape: collectives.share(ops.sum(ops.abs(tape.watch(w) * tape.constant(x))), comm.size(), comm)
    for loss in (errors, products) if apart else (lambda tape: errors(tape) + products(tape),):
        tape = weft.Tape()
        tape.backward(loss(tape), gradients)
    return comm.all_reduce(gradients[w]).numpy()


apart, added = weft.run_ranks(3, lambda comm: (gradient(comm, True), gradient(comm, False)))[0]
print(f"two backward passes  {apart}\none, of the sum      {added}")
assert np.allclose(apart, added, rtol=1e-15)
