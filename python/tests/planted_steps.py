# SPDX-License-Identifier: Apache-2.0
"""A step that reduces by itself, right and with each mistake that people make of it."""
import torch
import torch.distributed as dist
from torch import nn


def batch(seed, kind, rows=36):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(rows, width, generator=generator).to(kind) for width in (6, 4))


def model_of(kind):
    return lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).to(kind)


def ranks():
    return dist.get_world_size()


def count_of_all(rows):
    count = torch.tensor(rows, dtype=torch.float64)
    dist.all_reduce(count)
    return count.item()


def loss(model, inputs, targets):
    return (model(inputs) - targets).square().sum() / targets.shape[1]


def loss_of_all(model, batch):
    """What one process with the whole batch differentiates, without micro-batches."""
    return loss(model, *batch) / len(batch[0])


def backward(model, batch, parts=1, weight=None):
    """Each micro-batch weighs `weight(its rows, rows of the rank, rows of all)`, by default what it has to for a mean over ranks."""
    weight = weight or (lambda rows, own, of_all: rows * ranks() / of_all)
    own, of_all = len(batch[0]), count_of_all(len(batch[0]))
    first = own if parts == 1 else (2 * own + 2) // 3  # of unequal lengths
    for inputs, targets in [tuple(x[:first] for x in batch), tuple(x[first:] for x in batch)][:parts]:
        (loss(model, inputs, targets) / len(inputs) * weight(len(inputs), own, of_all)).backward()
        yield


def all_of(model):
    return [p.grad for p in model.parameters()]


def reduce(gradients, by=None, group=None):
    for g in gradients:
        dist.all_reduce(g, group=group)
        g /= by or ranks()


def done(passes):
    for _ in passes:
        pass


def right(model, batch):
    done(backward(model, batch))
    reduce(all_of(model))


def right_accumulation(model, batch):
    done(backward(model, batch, parts=2))
    reduce(all_of(model))


def right_clipping(model, batch):
    right(model, batch)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def right_sum(model, batch):
    done(backward(model, batch, weight=lambda rows, own, of_all: rows / of_all))
    reduce(all_of(model), by=1)


def missing_all_reduce(model, batch):
    done(backward(model, batch))


def sum_for_mean(model, batch):
    done(backward(model, batch))
    reduce(all_of(model), by=1)


def mean_of_unequal_batches(model, batch):
    done(backward(model, batch, weight=lambda rows, own, of_all: 1))
    reduce(all_of(model))


def two_losses_reduce_twice(model, batch):
    """A hook that reduces what has accumulated, in each of two backward passes."""
    for _ in backward(model, batch, parts=2, weight=lambda rows, own, of_all: rows / of_all):
        reduce(all_of(model), by=1)


def one_parameter_not_reduced(model, batch):
    done(backward(model, batch))
    reduce(all_of(model)[1:])


def divided_by_local_world(model, batch):
    done(backward(model, batch))
    reduce(all_of(model), by=min(2, ranks()))


def last_micro_batch_only(model, batch):
    for _ in backward(model, batch, parts=2):
        last = [g.clone() for g in all_of(model)]
        for p in model.parameters():
            p.grad = None
    for p, g in zip(model.parameters(), last):
        p.grad = g
    reduce(all_of(model))


def unequal_micro_batches(model, batch):
    done(backward(model, batch, parts=2, weight=lambda rows, own, of_all: own / 2 * ranks() / of_all))
    reduce(all_of(model))


def clip_before_reduction(model, batch):
    done(backward(model, batch))
    nn.utils.clip_grad_norm_(model.parameters(), 0.3)
    reduce(all_of(model))


def wrong_group(model, batch):
    done(backward(model, batch))
    pair = dist.new_group(range(min(2, ranks())))
    rest = dist.new_group(range(2, ranks())) if ranks() > 2 else None
    mine = pair if dist.get_rank() < 2 else rest
    reduce(all_of(model), by=dist.get_world_size(mine), group=mine)


right_steps = [right, right_accumulation, right_clipping, right_sum]
# Each with the beginning of what is said of it, on three ranks.
wrong_steps = [(missing_all_reduce, "S22"), (sum_for_mean, "S8"), (mean_of_unequal_batches, "S12"), (two_losses_reduce_twice, "S14"),
               (one_parameter_not_reduced, "S22"), (divided_by_local_world, "S33"), (last_micro_batch_only, "S15"),
               (unequal_micro_batches, "the gradients of micro-batches 0 to 1 weigh 3/4 and 3/2 times"), (clip_before_reduction, "clipped to 0.3 before"),
               (wrong_group, "reduced in groups of their own: ranks 0, 1; 2")]
