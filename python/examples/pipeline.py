# SPDX-License-Identifier: Apache-2.0
"""A pipeline of one layer for each rank, with two micro-batches. Parameters have the names that they have in the whole model."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import weft.torch


def model():
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return layers if ranks == 1 else nn.ModuleDict({str(rank): layers[rank]})


def run_stage(model, batch, scale_grads):
    inputs, targets = batch
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks == 1:
        return nn.functional.mse_loss(model(inputs), targets)
    stage = PipelineStage(model[str(rank)], rank, ranks, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss, scale_grads=scale_grads)
    if rank == 0:
        schedule.step(inputs)
    else:
        schedule.step(**({"target": targets} if rank == ranks - 1 else {}))


def step(model, batch):
    return run_stage(model, batch, scale_grads=True)


def wrong(model, batch):
    return run_stage(model, batch, scale_grads=False)


batch = torch.randn(24, 6), torch.randn(24, 6)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, parts=1))
