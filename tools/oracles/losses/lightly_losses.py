# SPDX-License-Identifier: Apache-2.0
"""Lightly's losses, with gather_distributed where they have it."""
import torch
from lightly.loss import (BarlowTwinsLoss, DCLLoss, DCLWLoss, DINOLoss, KoLeoLoss, MSNLoss, NTXentLoss, PMSNLoss,
                          SwaVLoss, TiCoLoss, VICRegLoss)
from lightly.loss.lejepa_loss import SIGReg

from cases import Case, ranks, uniform

PACKAGE = "lightly"
BATCH, WIDTH = 12, 5


def views(name, count=2, width=WIDTH):
    return [uniform(f"{name} {i}", BATCH, width) for i in range(count)]


def of_views(loss, **options):
    return lambda x, shared, given: loss(**options, gather_distributed=ranks() > 1)(*x)


def negatives(x, shared, given):
    loss = NTXentLoss(0.2, memory_bank_size=tuple(given["bank"].shape))
    loss.memory_bank.bank = given["bank"]
    return loss(*x), {"bank": loss.memory_bank.bank}


def tico(x, shared, given):
    loss = TiCoLoss(beta=0.9, rho=8.0, gather_distributed=ranks() > 1)
    loss.C = given["covariance"]
    return loss(*x), {"covariance": loss.C}


def sigreg(x, shared, given):
    loss = SIGReg(num_vectors=given["slices"].shape[1], gather_distributed=ranks() > 1).double()
    loss._generate_unit_vectors = lambda *_: given["slices"]
    # Computes the buffers again in f64, since the library rounds them to f32.
    last, step = len(loss.t) - 1, loss.t[1].item()
    loss.phi = torch.exp(-loss.t.square() / 2)
    loss.weights = 2 * step * loss.phi
    loss.weights[[0, last]] /= 2
    return loss(x[0])


def swav(x, shared, given):
    loss = SwaVLoss(sinkhorn_gather_distributed=ranks() > 1)
    return loss(x[:2], x[2:])


def siamese(loss, **options):
    return lambda x, shared, given: loss(**options, gather_distributed=ranks() > 1)(x[0], x[1], shared[0])


def dino(x, shared, given):
    loss = DINOLoss(output_dim=x[0].shape[1], teacher_temp=0.07).double()
    loss.center.data = given["center"].reshape(1, 1, -1)
    teacher = [view.detach() for view in x[:2]]
    return loss(teacher, x[2:], teacher_temp=0.07), {"center": loss.center.flatten()}


def with_prototypes(loss, mode, call, variant=None):
    return Case(loss, mode, call, views(loss), [uniform("prototypes", 6, WIDTH)], variant=variant)


# The directions that Weft's SIGReg draws from the key 7.
directions = torch.tensor([
    [0.60099807110652437, 0.32117843359901926, -0.46581349282980422, -0.5054883366495978, 0.25128681566297545],
    [-0.38481722931779888, -0.48180464101334108, -0.027475818765547111, 0.61534125891437597, -0.4902858374244678],
    [-0.21777019272551076, 0.76189166030682898, -0.25450203209143279, 0.53662393368201544, 0.13914277047755216],
], dtype=torch.float64)
root = uniform("root", WIDTH, WIDTH, low=-0.4, high=0.4)
bank = torch.nn.functional.normalize(uniform("bank", 7, WIDTH), dim=1)

CASES = [
    Case("NT-Xent", "gather_distributed", of_views(NTXentLoss, temperature=0.5), views("NT-Xent"),
         variant="gather"),
    Case("DCL", "gather_distributed", of_views(DCLLoss, temperature=0.1), views("DCL"), variant="gather"),
    Case("DCLW", "gather_distributed", of_views(DCLWLoss, temperature=0.1, sigma=0.5), views("DCLW"),
         variant="gather"),
    Case("InfoNCE", "memory_bank_size", negatives, views("MoCo"), given={"bank": bank}, distributed=False),
    Case("VICReg", "gather_distributed", of_views(VICRegLoss), views("VICReg"), variant=""),
    Case("TiCo", "gather_distributed", tico, views("TiCo"), given={"covariance": root @ root.T},
         variant="later step"),
    Case("Barlow Twins", "gather_distributed", of_views(BarlowTwinsLoss, lambda_param=5e-3), views("Barlow Twins"),
         variant=""),
    Case("SIGReg", "gather_distributed", sigreg, views("SIGReg", 1), given={"slices": directions.T}, variant=""),
    Case("KoLeo", "local", lambda x, shared, given: KoLeoLoss()(x[0]), views("KoLeo", 1), variant="nearest"),
    Case("SwaV", "sinkhorn_gather_distributed", swav, views("SwaV", 3, 6), variant="two high, one low"),
    with_prototypes("MSN", "gather_distributed", siamese(MSNLoss), ""),
    with_prototypes("MSN", "without regularization", siamese(MSNLoss, regularization_weight=0)),
    with_prototypes("PMSN", "gather_distributed", siamese(PMSNLoss), ""),
    Case("DINO", "center", dino, views("DINO", 5, 6), given={"center": uniform("center", 6, low=-0.2, high=0.2)},
         variant=""),
]
