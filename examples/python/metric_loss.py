# SPDX-License-Identifier: Apache-2.0
"""A metric as the loss: the Pearson correlation over the samples of all ranks, which have 1, 3 and 5. It is no mean over samples,
so a mean of the ranks' correlations would be wrong; one sample has none at all."""
import numpy as np

import weft
from weft import collectives, losses, ops

x = np.random.default_rng(3).normal(size=(9, 2))
targets = np.sin(x).sum(1)


def train(comm):
    rows, w = slice(comm.rank()**2, (comm.rank() + 1)**2), weft.Parameter("w", [[1.0], [-0.5]])
    for step in range(31):
        tape, gradients = weft.Tape(), weft.Gradients()
        predictions = ops.flatten(ops.matmul(tape.constant(x[rows]), tape.watch(w)), 0)
        correlation = losses.pearson_correlation(predictions, tape.constant(targets[rows]), comm)
        tape.backward(collectives.keep_on(-correlation, 0, comm), gradients)
        w.value = w.value.numpy() - 0.3 * comm.all_reduce(gradients[w]).numpy()
        if comm.rank() == 0 and step % 10 == 0:
            print(f"step {step}  correlation {correlation.item():.4f}")
    return correlation.item()


assert min(weft.run_ranks(3, train)) > 0.89
