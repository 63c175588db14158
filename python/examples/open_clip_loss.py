# SPDX-License-Identifier: Apache-2.0
"""OpenCLIP: without gather_with_grad its loss has no gradient for what other ranks have gathered."""
import sys

import torch.distributed as dist
from open_clip.loss import ClipLoss

import weft.torch
from contrastive import batch, model


def loss(model, batch, gather_with_grad):
    of_rank = ClipLoss(local_loss=True, gather_with_grad=gather_with_grad, rank=dist.get_rank(), world_size=dist.get_world_size())
    return of_rank(*model(*batch))


def step(model, batch):
    return loss(model, batch, gather_with_grad=True)


def wrong(model, batch):
    return loss(model, batch, gather_with_grad=False)


if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, uneven=False))
