# SPDX-License-Identifier: Apache-2.0
"""TorchMetrics: a metric as a loss has the gradient of the rank's own slot, of which DDP takes the mean."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torchmetrics import MeanSquaredError

import weft.torch


def model():
    return nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))


def wrong(model, batch):
    inputs, targets = batch
    return MeanSquaredError(squared=False, dist_sync_on_step=True)(model(inputs), targets)


def step(model, batch):
    return wrong(model, batch) * dist.get_world_size()


batch = torch.randn(24, 6), torch.randn(24, 3)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch))
