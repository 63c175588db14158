# SPDX-License-Identifier: Apache-2.0
"""What a step counts and may divide by: tokens, valid tokens, the ranks of a node."""


def own_counts(counts, batch):
    """Of one rank: `counts`, or what it returns for the samples of the rank."""
    return counts(batch) if callable(counts) else counts or {}


def table_of(name, of_ranks):
    """A number of the job, one of each rank, or those of its micro-batches: by rank and micro-batch."""
    of_ranks = of_ranks if isinstance(of_ranks, (list, tuple)) else [of_ranks]
    table = [[float(x) for x in (own if isinstance(own, (list, tuple)) else [own])] for own in of_ranks]
    if len({len(own) for own in table}) != 1 or not table[0] or any(not x >= 0 for own in table for x in own):
        raise ValueError(f"the count {name} is a number of each rank, or of each of its micro-batches, which are equally many; not {of_ranks}")
    return table


def joined_counts(of_each):
    """By name, of the counts of each rank."""
    if len({frozenset(own) for own in of_each}) != 1:
        raise ValueError(f"all ranks have the same counts, not {' and '.join(sorted({str(sorted(own)) for own in of_each}))}")
    return {name: table_of(name, [own[name] for own in of_each]) for name in of_each[0]}
