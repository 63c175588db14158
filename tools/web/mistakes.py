# SPDX-License-Identifier: Apache-2.0
"""The usual mistakes in PyTorch, as the page shows them: gathers of x, and backwards of a gather, whose g has the row of every rank.
`rank` and `W` are those of the job. tests/web/in_pytorch.py runs them, and compares what comes back with Weft."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable

rank, W = 0, 1


def own_slot(x):
    rows = [torch.empty_like(x) for _ in range(W)]
    dist.all_gather(rows, x)  # has no gradient
    rows[rank] = x  # so only the own slot has one
    return torch.cat(rows)


def nothing(x):
    rows = [torch.empty_like(x) for _ in range(W)]
    dist.all_gather(rows, x)  # has no gradient
    return torch.cat(rows)


def mean(g):
    dist.all_reduce(g)
    return g[rank : rank + 1] / W  # of a sum, the adjoint is a sum


def reduced_twice(g):
    dist.all_reduce(g)  # the adjoint's own sum
    dist.all_reduce(g)  # and a trainer's, of what is summed already
    return g[rank : rank + 1]


def counted_twice(g):
    dist.all_reduce(g)
    hooked = g[rank : rank + 1].clone()  # a hook adds it to the gradient
    return hooked + g[rank : rank + 1]  # and autograd does as well


def own_slot_times_W(g):
    return g[rank : rank + 1] * W  # right only if all ranks have the same loss


def sum_of_own_slots(g):
    mine = g[rank : rank + 1].clone()
    dist.all_reduce(mine)  # adds the slots of different ranks
    return mine


def without_its_own(x):
    rows = list(differentiable.all_gather(x))
    rows[rank] = x.detach()  # "it is here already"
    return torch.cat(rows)


def rank_0_only(g):
    dist.broadcast(g, src=0)  # the adjoint reduces; it does not broadcast
    return g[rank : rank + 1]


def last_rank_missing(g):
    parts = [torch.empty_like(g) for _ in range(W)]
    dist.all_gather(parts, g)
    return sum(parts[: W - 1])[rank : rank + 1]  # ends one too early


def ranks_before_only(g):
    parts = [torch.empty_like(g) for _ in range(W)]
    dist.all_gather(parts, g)
    return sum(parts[: rank + 1])[rank : rank + 1]  # a loop over the ranks so far


def ranks_after_only(g):
    parts = [torch.empty_like(g) for _ in range(W)]
    dist.all_gather(parts, g)
    return sum(parts[rank:])[rank : rank + 1]  # a loop from the own rank on


def off_by_a_rank(g):
    dist.all_reduce(g)
    other = (rank + 1) % W  # ranks are counted from 0
    return g[other : other + 1]


def ranks_reversed(g):
    dist.all_reduce(g)
    other = W - 1 - rank  # the list was built from its end
    return g[other : other + 1]


def not_turned(g):
    parts = [torch.empty_like(g) for _ in range(W)]
    dist.all_gather(parts, g)  # the gather again
    return torch.cat(parts)[:1]
