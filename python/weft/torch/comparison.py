# SPDX-License-Identifier: Apache-2.0
"""The distance of a gradient from the truth, in multiples of expected rounding."""
import dataclasses

import torch

from .. import _weft

limit = 8  # as in the verifier: what is up to so many times expected rounding counts as equal


@dataclasses.dataclass(frozen=True)
class Row:
    parameter: str
    rank: int
    elements: int
    error: float
    cosine: float
    ratio: float
    length: float         # of the truth
    shown: float          # the smallest factor that shows, less one
    worst_element: int
    dumped: float
    expected: float

    wrong = property(lambda self: not self.error <= limit)

    def told(self):
        """As the verifier takes it: what it has measured is a part of its own."""
        parameter, rank, elements, *distance = dataclasses.astuple(self)
        return parameter, rank, elements, tuple(distance)


def squares_of(local, shape):
    """The sum of the squares of local gradients, and of how many. What ranks add up has been rounded, too, and may have
    cancelled since."""
    terms = [x for x in local if x.shape == shape]
    squares = torch.zeros(shape, dtype=torch.float64)
    for x in terms:
        squares.addcmul_(x, x)
    return squares, len(terms)


def row_of(parameter, rank, found, truth, inexact, squares=None, terms=0):
    """`inexact` gradients are the truth with all that goes into it off by its precision."""
    if found.shape != truth.shape:
        raise ValueError(f"{parameter} has the shape {list(found.shape)} on rank {rank}, and {list(truth.shape)} on one process")
    found, truth, *inexact = (x.detach().to(truth.dtype).contiguous() for x in (found, truth, *inexact))
    return Row(parameter, rank, truth.numel(), *_weft.distance(found, truth, inexact, squares, terms))
