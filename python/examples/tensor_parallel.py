# SPDX-License-Identifier: Apache-2.0
"""Tensor parallel layers, whose ranks have the same samples: a norm inside of a divided region needs the sum over the ranks."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import weft.torch


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.gain = nn.Linear(6, 12), nn.Linear(12, 6), nn.Parameter(torch.linspace(0.5, 2, 6))

    def forward(self, x):
        return self.down(torch.tanh(self.up(x * self.gain)))


def model():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(Block(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def step(model, batch):
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs), targets)


def wrong(model, batch):
    step(model, batch).backward()
    dist.all_reduce(model.gain.grad)  # DTensor has added it up already


batch = torch.randn(24, 6), torch.randn(24, 6)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, parts=1))
