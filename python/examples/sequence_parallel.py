# SPDX-License-Identifier: Apache-2.0
"""Sequence parallelism over DTensor: ranks have different tokens between the divided layers, so a norm there has terms of its
gradient on each of them."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

import weft.torch


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 12), nn.Linear(12, 6)

    def forward(self, x):
        return self.down(torch.tanh(self.up(self.norm(x))))


def model():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    block = parallelize_module(Block(), mesh, PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)))
    return parallelize_module(block, mesh, {"norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
                                            "down": RowwiseParallel()})


def step(model, batch):
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs), targets)


def wrong(model, batch):
    step(model, batch).backward()
    for p in model.norm.parameters():
        p.grad = type(p.grad).from_local(p.grad.to_local(), p.device_mesh, [Replicate()])  # terms are taken for their sum


batch = torch.randn(4, 6, 6), torch.randn(4, 6, 6)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, parts=1))
