# SPDX-License-Identifier: Apache-2.0
"""A contrastive loss over the features of all ranks: what other ranks' samples say of these has to come back."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather

import weft.torch


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.images, self.texts, self.scale = nn.Linear(6, 4), nn.Linear(5, 4), nn.Parameter(torch.tensor(1.5))

    def forward(self, images, texts):
        normalize = nn.functional.normalize
        return normalize(self.images(images)), normalize(self.texts(texts)), self.scale.exp()


def model():
    return nn.parallel.DistributedDataParallel(Towers())


def own_slot(x):
    """What other ranks sent has no gradient, and the own features are put back."""
    slots = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(slots, x.detach())
    slots[dist.get_rank()] = x
    return slots


def loss(model, batch, gather):
    images, texts, scale = model(*batch)
    scores = scale * torch.cat(tuple(gather(images))) @ torch.cat(tuple(gather(texts))).T
    labels = torch.arange(len(scores))
    return (nn.functional.cross_entropy(scores, labels) + nn.functional.cross_entropy(scores.T, labels)) / 2


def step(model, batch):
    return loss(model, batch, all_gather)


def wrong(model, batch):
    return loss(model, batch, own_slot)


batch = torch.randn(24, 6), torch.randn(24, 5)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, uneven=False))
