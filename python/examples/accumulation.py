# SPDX-License-Identifier: Apache-2.0
"""Accumulation over micro-batches of unequal lengths: each counts as much as it has samples."""
import sys

import torch
import torch.distributed as dist
from torch import nn

import weft.torch


def model():
    return nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))


def micro_batches(batch):
    inputs, targets = batch
    first = (2 * len(inputs) + 2) // 3
    return [(inputs[:first], targets[:first]), (inputs[first:], targets[first:])]


def accumulated(model, batch, share):
    count = torch.tensor(float(len(batch[0])))
    dist.all_reduce(count)
    parts = micro_batches(batch)
    for number, (inputs, targets) in enumerate(parts):
        model.require_backward_grad_sync = number == len(parts) - 1
        mean = nn.functional.mse_loss(model(inputs), targets)
        (mean * dist.get_world_size() * share(len(inputs), len(batch[0])) / count).backward()


def step(model, batch):
    accumulated(model, batch, lambda own, all_own: own)


def wrong(model, batch):
    accumulated(model, batch, lambda own, all_own: all_own / 2)


def truth(model, batch):
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs), targets)


batch = torch.randn(24, 6), torch.randn(24, 3)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, truth=truth))
