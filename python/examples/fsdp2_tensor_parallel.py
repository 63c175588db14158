# SPDX-License-Identifier: Apache-2.0
"""FSDP2 over tensor parallel layers: two halves of the samples, each on two ranks."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import weft.torch


def model():
    ranks = dist.get_world_size()
    mesh = init_device_mesh("cpu", ((ranks + 1) // 2, min(2, ranks)), mesh_dim_names=("dp", "tp"))
    layers = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6))
    parallelize_module(layers, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return fully_shard(layers, mesh=mesh["dp"])


def step(model, batch):
    inputs, targets = batch
    count = torch.tensor(float(len(inputs)))
    dist.all_reduce(count)  # the ranks of a row of the mesh count the same samples
    return (model(inputs) - targets).square().sum() * dist.get_world_size() / count


def wrong(model, batch):
    inputs, targets = batch
    return (model(inputs) - targets).square().sum() / len(inputs)


batch = torch.randn(24, 6), torch.randn(24, 6)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, ranks=4, parts=2))
