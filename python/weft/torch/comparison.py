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


def _expected_largest(count):
    """Of so many squares whose mean is 1."""
    return max(1, 2 * math.log(count))


class _Sums:
    """Of a gradient x and the truth y, in blocks that stay in the cache. The error is that as a whole, of every row and of every
    element; the largest counts. Each of these has its own rounding, and a share of that of all, since few numbers tell it badly."""

    def __init__(self, found, truth, rounding):
        self.x_x = self.y_y = self.x_y = self.squares = self.of_row = self.of_element = 0.0
        self.seen, self.worst, self.worst_square = 0, 0, -1.0
        count, rows = truth.numel(), len(truth) if truth.dim() > 1 else 1
        if count == 0:
            self.error = 0.0
            return
        columns, tiny = count // rows, torch.finfo(torch.float64).tiny
        own = rounding.sum().item()
        share = max(own / count, tiny)
        for block in zip(*(x.reshape(rows, columns).split(max(1, (1 << 17) // columns)) for x in (found, truth, rounding))):
            self._add(*(x.double() for x in block), share)
        as_a_whole = self.squares / count * (count + 1) / (own + share)
        ratio = max(as_a_whole, self.of_row / _expected_largest(rows), self.of_element / _expected_largest(count))
        self.error = math.sqrt(ratio) if math.isfinite(self.squares) else math.inf

    def _add(self, x, y, rounding, share):
        columns, squares = x.shape[1], (x - y).square_()
        at = squares.argmax().item()
        square = squares.flatten()[at].item()
        if not math.isnan(self.worst_square) and not square <= self.worst_square:
            self.worst, self.worst_square = self.seen + at, square
        self.seen += x.numel()
        of_rows = squares.sum(1)
        self.squares += of_rows.sum().item()
        self.of_row = max(self.of_row, (of_rows / columns * (columns + 1) / (rounding.sum(1) + share)).max().item())
        self.of_element = max(self.of_element, (squares * 2 / (rounding + share)).max().item())
        self.x_x += (x * x).sum().item()
        self.y_y += (y * y).sum().item()
        self.x_y += (x * y).sum().item()


def error_of(found, truth, rounding):
    """In multiples of expected rounding."""
    return _Sums(found, truth, rounding).error


def row_of(parameter, rank, found, truth, rounding):
    if found.shape != truth.shape:
        raise ValueError(f"{parameter} has the shape {list(found.shape)} on rank {rank}, and {list(truth.shape)} on one process")
    sums = _Sums(found, truth, rounding)
    length, at = math.sqrt(sums.y_y) or 1.0, sums.worst
    of_worst = [x.flatten()[at].item() if len(x.flatten()) else 0.0 for x in (found, truth)]
    return Row(parameter, rank, sums.error, sums.x_y / (math.sqrt(sums.x_x) * length or 1.0), math.sqrt(sums.x_x) / length,
               limit * rounding.sum().sqrt().item() / length, at, *of_worst)
