# SPDX-License-Identifier: Apache-2.0
"""The distance of a gradient from the truth, in multiples of expected rounding."""
import dataclasses
import math

import torch

limit = 8  # as in the verifier: what is up to so many times expected rounding counts as equal


@dataclasses.dataclass(frozen=True)
class Row:
    parameter: str
    rank: int
    error: float
    cosine: float
    ratio: float
    shown: float          # the smallest factor that shows, less one
    worst_element: int
    dumped: float
    expected: float

    wrong = property(lambda self: not self.error <= limit)


def squares_of(local, shape):
    """The sum of the squares of local gradients, and of how many. What ranks add up has been rounded, too, and may have
    cancelled since."""
    terms = [x for x in local if x.shape == shape]
    return sum((x.double().square() for x in terms), torch.zeros(shape, dtype=torch.float64)), len(terms)


def rounding_of(truth, moved, squares, count):
    """Squared, of each element."""
    half_step = torch.finfo(truth.dtype).eps / 2
    return moved.double().square() + half_step ** 2 * (squares + truth.double().square()) / (count + 1)


def _largest(squares, rounding):
    """Of the groups that the first dimension has: each has its own rounding, and a share of that of all, since few numbers
    tell it badly."""
    count = squares[0].numel()
    own = (rounding.flatten(1).sum(1) + rounding.mean()) / (count + 1)
    of_largest = max(1, 2 * math.log(len(squares)))  # what the largest of so many squares is expected to be
    return (squares.flatten(1).mean(1) / own).max().div(of_largest).sqrt().item()


def error_of(found, truth, rounding):
    """As a whole, in every row and in every element; the largest counts."""
    squares = (found.double() - truth.double()).square()
    if not squares.isfinite().all():
        return float("inf")
    rounding = rounding.clamp_min(torch.finfo(torch.float64).tiny)
    views = [lambda x: x.reshape(1, -1), lambda x: x.reshape(-1, 1)] + ([lambda x: x] if truth.dim() > 1 else [])
    return max(_largest(view(squares), view(rounding)) for view in views)


def row_of(parameter, rank, found, truth, rounding):
    if found.shape != truth.shape:
        raise ValueError(f"{parameter} has the shape {list(found.shape)} on rank {rank}, and {list(truth.shape)} on one process")
    x, y = found.double().flatten(), truth.double().flatten()
    worst = (x - y).abs().nan_to_num(float("inf")).argmax().item()
    length = y.norm().item() or 1.0
    return Row(parameter, rank, error_of(found, truth, rounding), torch.cosine_similarity(x, y, dim=0).item(),
               x.norm().item() / length, limit * rounding.sum().sqrt().item() / length, worst, x[worst].item(), y[worst].item())
