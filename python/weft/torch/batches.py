# SPDX-License-Identifier: Apache-2.0
"""Batches: a tensor, or tuples, lists and dictionaries of them, whose first dimension is that of the samples."""
import itertools

import torch


def tensors_of(batch):
    if isinstance(batch, torch.Tensor):
        return [batch]
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return [x for each in values for x in tensors_of(each)]


def rows_of(batch):
    counts = {len(x) for x in tensors_of(batch) if x.dim()}
    if len(counts) != 1:
        raise ValueError(f"the tensors of a batch have one number of rows, and these have {sorted(counts) or 'none'}")
    return counts.pop()


def mapped(function, *batches):
    """A batch of the same form, whose tensors are function(tensor of each batch)."""
    first = batches[0]
    if isinstance(first, dict):
        return type(first)({key: mapped(function, *(each[key] for each in batches)) for key in first})
    if isinstance(first, (list, tuple)):
        return type(first)(mapped(function, *each) for each in zip(*batches))
    return function(*batches) if isinstance(first, torch.Tensor) and first.dim() else first


def joined(batches):
    return mapped(lambda *parts: torch.cat([part.detach().cpu() for part in parts]), *batches)


def sizes(rows, parts, uneven):
    """How many rows each part has: in proportion to 2, 1, 3, 2, 1, 3, ... if uneven."""
    weights = [each if uneven else 1 for each in itertools.islice(itertools.cycle((2, 1, 3)), parts)]
    ends = [rows * sum(weights[:part + 1]) // sum(weights) for part in range(parts)]
    found = [end - start for start, end in zip([0, *ends], ends)]
    if 0 in found:
        raise ValueError(f"a batch of {rows} rows is too small for {parts} parts: take at least {2 * sum(weights)} rows")
    return found


def divided(batch, parts, uneven):
    counts = sizes(rows_of(batch), parts, uneven)
    return [mapped(lambda x: x.split(counts)[part].clone(), batch) for part in range(parts)]
