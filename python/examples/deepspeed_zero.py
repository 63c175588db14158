# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ZeRO, stage 2: it takes the mean over the ranks, so a loss that is divided once more counts too little."""
import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

import weft.torch


def model():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def differentiate(model, batch, weight):
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), 0), dist_init_required=False, config={
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True})
    inputs, targets = batch
    count = torch.tensor(float(len(inputs)))
    dist.all_reduce(count)
    engine.backward((engine(inputs) - targets).square().sum() * weight / count)
    for p in model.parameters():
        p.grad = deepspeed.utils.safe_get_full_grad(p)


def step(model, batch):
    differentiate(model, batch, dist.get_world_size())


def wrong(model, batch):
    differentiate(model, batch, 1)


batch = torch.randn(24, 6), torch.randn(24, 3)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch))
