# SPDX-License-Identifier: Apache-2.0
"""Collectives that pass on the gradients that they lose: if a step is right with them, that is its mistake."""
import contextlib
import functools
import unittest.mock
import warnings

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable

from .lost_gradients import place


def _all_gather(gather, slots, x, group=None, async_op=False):
    for slot, y in zip(slots, gather(x, group or dist.group.WORLD)):
        slot.copy_(y)


def _all_gather_into_tensor(gather, result, x, group=None, async_op=False):
    result.copy_(torch.cat(gather(x, group or dist.group.WORLD)).view_as(result))


def _all_reduce(reduce, x, op=dist.ReduceOp.SUM, group=None, async_op=False):
    x.copy_(reduce(x, op, group or dist.group.WORLD))


def _loses(x, async_op=False):
    return isinstance(x, torch.Tensor) and x.requires_grad and not async_op


@contextlib.contextmanager
def mended():
    """Notes those that it has mended, with their lines. What a collective does in a function with a backward pass of its own is that
    function's business: there no gradients are recorded."""
    calls = []

    def in_place(name, mend, function, given):
        lost = getattr(dist, name)

        def call(*arguments, **options):
            x = arguments[given] if len(arguments) > given else options.get("input_tensor", options.get("tensor"))
            if not (torch.is_grad_enabled() and _loses(x, options.get("async_op", False))):
                return lost(*arguments, **options)
            calls.append(f"{name} at {place()}")
            return mend(function, *arguments, **options)
        return unittest.mock.patch.object(dist, name, call)

    def in_no_grad(name, function):
        @functools.wraps(function)
        def call(x, *arguments, **options):
            if torch.is_grad_enabled() or not _loses(x):
                return function(x, *arguments, **options)
            calls.append(f"{name} at {place()}")
            with torch.enable_grad():
                return function(x, *arguments, **options)
        return [unittest.mock.patch.object(module, name, call) for module in (differentiable, dist.nn)]

    gather, reduce = differentiable.all_gather, differentiable.all_reduce
    with contextlib.ExitStack() as stack:
        for each in (in_place("all_gather", _all_gather, gather, 1), in_place("all_gather_into_tensor", _all_gather_into_tensor, gather, 1),
                     in_place("all_reduce", _all_reduce, reduce, 0), *in_no_grad("all_gather", gather), *in_no_grad("all_reduce", reduce)):
            stack.enter_context(each)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", FutureWarning)  # of the differentiable ones
        yield calls
