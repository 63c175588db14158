# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel: a mean of uneven shards is no mean of their means."""
import sys

import torch
import torch.distributed as dist
from torch import nn

import weft.torch


def model():
    return nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))


def step(model, batch):
    inputs, targets = batch
    count = torch.tensor(float(len(inputs)))
    dist.all_reduce(count)
    loss = nn.functional.mse_loss(model(inputs), targets, reduction="sum") / targets.shape[1]
    return loss * dist.get_world_size() / count  # DDP takes the mean over the ranks


def wrong(model, batch):
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs), targets)


batch = torch.randn(24, 6), torch.randn(24, 3)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch))
