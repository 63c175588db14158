# SPDX-License-Identifier: Apache-2.0
"""A vector quantizer whose codes are moving averages of the tokens of all ranks, which have 0, 20 and 40. All ranks end with the
same bits, and with the codes of one process that has all tokens."""
import numpy as np

import weft
from weft import quantizers

tokens = np.random.default_rng(5).normal(size=(60, 4))


def learn(comm):
    mine = np.split(tokens, [0, 20])[comm.rank()] if comm.size() == 3 else tokens
    quantizer = quantizers.VectorQuantize("vq", weft.Init(7, "f64"), dim=4, codes=8)
    for step in range(10):
        found = quantizer(mine, weft.Pass(training=True, key=step), comm)
        quantizer.update(comm, step)
        distance = comm.all_reduce(np.array(np.sum((found.values.numpy() - mine)**2))).item() / len(tokens)
        if comm.rank() == 0 and comm.size() == 3 and step in (0, 9):
            print(f"step {step}: mean squared distance {distance:.3f}")
    return quantizer.codebook.codes.value.numpy()


first, *others = weft.run_ranks(3, learn)
assert all(np.array_equal(first, codes) for codes in others) and np.allclose(first, weft.run_ranks(1, learn)[0], rtol=1e-12)
