# SPDX-License-Identifier: Apache-2.0
"""OpenCLIP's losses: the four modes of ClipLoss, and the four implementations of SigLipLoss."""
import torch
import torch.distributed.nn
from open_clip.loss import ClipLoss, SigLipLoss
from torch.nn.functional import normalize

from cases import Case, rank, ranks, uniform

PACKAGE = "open_clip_torch"
TOWERS = [uniform("images", 12, 5), uniform("texts", 12, 5)]


def clip(local_loss, gather_with_grad, variant=None):
    def call(x, shared, given):
        loss = ClipLoss(local_loss=local_loss, gather_with_grad=gather_with_grad, rank=rank(), world_size=ranks())
        return loss(normalize(x[0]), normalize(x[1]), shared[0])
    mode = f"local_loss={local_loss}, gather_with_grad={gather_with_grad}"
    return Case("CLIP", mode, call, TOWERS, [torch.tensor(4.0, dtype=torch.float64)], variant=variant)


def siglip(implementation, variant):
    def call(x, shared, given):
        loss = SigLipLoss(rank=rank(), world_size=ranks(), dist_impl=implementation)
        return loss(normalize(x[0]), normalize(x[1]), shared[0], shared[1])
    scalars = [torch.tensor(4.0, dtype=torch.float64), torch.tensor(-2.0, dtype=torch.float64)]
    return Case("SigLIP", implementation, call, TOWERS, scalars, variant=variant)


CASES = [
    clip(False, False, "replicated"),  # the default
    clip(False, True),
    clip(True, False),
    clip(True, True, "local rows, gather"),
    siglip("gather", "gather"),
    siglip("shift", "ring"),
    siglip("bidir", "both ways"),
    siglip("reduce", "per rank"),
]
