# SPDX-License-Identifier: Apache-2.0
"""Lightly: by default a rank's samples are compared with those of the same rank only."""
import sys

import torch
import torch.distributed as dist
from lightly.loss import NTXentLoss
from torch import nn

import weft.torch


def model():
    return nn.parallel.DistributedDataParallel(nn.Linear(6, 4))


def loss(model, batch, gather_distributed):
    first, second = model(torch.cat(batch)).chunk(2)
    return NTXentLoss(gather_distributed=gather_distributed and dist.get_world_size() > 1)(first, second)


def step(model, batch):
    return loss(model, batch, gather_distributed=True)


def wrong(model, batch):
    return loss(model, batch, gather_distributed=False)


batch = torch.randn(24, 6), torch.randn(24, 6)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, uneven=False))
