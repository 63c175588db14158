# SPDX-License-Identifier: Apache-2.0
"""FSDP2: the gradients are divided among ranks, and are the mean over them."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import weft.torch


def model():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    for layer in layers:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(layers, mesh=mesh)


def step(model, batch):
    inputs, targets = batch
    count = torch.tensor(float(len(inputs)))
    dist.all_reduce(count)
    return (model(inputs) - targets).square().sum() * dist.get_world_size() / count


def wrong(model, batch):
    return step(model, batch) / dist.get_world_size()  # FSDP2 divides, too


batch = torch.randn(24, 6), torch.randn(24, 3)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch))
