# SPDX-License-Identifier: Apache-2.0
"""Accelerate with accumulation: it divides by the number of micro-batches, which is right for the means of equal ones only."""
import sys

import torch
from accelerate import Accelerator
from torch import nn

import weft.torch


def model():
    return Accelerator(cpu=True).prepare(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))


def accumulated(model, batch, mean):
    accelerator, (inputs, targets) = Accelerator(cpu=True, gradient_accumulation_steps=2), batch
    count = accelerator.reduce(torch.tensor(float(len(inputs)))) / accelerator.num_processes / 2  # of a micro-batch, on average
    first = (2 * len(inputs) + 2) // 3
    for part in slice(0, first), slice(first, None):
        with accelerator.accumulate(model):
            of_rows = nn.functional.mse_loss(model(inputs[part]), targets[part], reduction="none").mean(1)
            accelerator.backward(of_rows.sum() / (len(of_rows) if mean else count))


def step(model, batch):
    accumulated(model, batch, mean=False)


def wrong(model, batch):
    accumulated(model, batch, mean=True)


def truth(model, batch):
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs), targets)


batch = torch.randn(24, 6), torch.randn(24, 3)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, truth=truth))
