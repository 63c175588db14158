# SPDX-License-Identifier: Apache-2.0
"""Numbers of their own for every rank, and samples that ranks have unevenly."""
import numpy as np
import pytest

all_ranks = pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])


def drawn(*shape, seed=0, low=-1.0, high=1.0):
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape)


def uneven(total, ranks):
    """How many of the samples each rank has: all of them different, and none on the last of five and more."""
    counts = [total * (r + 1) // (ranks * (ranks + 1) // 2) for r in range(ranks)]
    if ranks >= 5:
        counts[-1] = 0
    counts[0] += total - sum(counts)
    return counts


def parts(array, counts):
    return np.split(array, np.cumsum(counts)[:-1])
