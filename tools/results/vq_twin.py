#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""apps/train_vq with its own options in PyTorch, with the quantizer of vector-quantize-pytorch, in one process of one
thread: the same data, network, loss, optimizer and settings of the quantizer, with other random numbers.

    vq_twin.py SEED EPOCHS
"""
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from fashion_mnist import read
from torch import nn
from vector_quantize_pytorch import VectorQuantize

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench/rivals"))
from torch_recipe import rate_at  # noqa: E402

batch, codes, dim, width, schedule = 256, 512, 16, 32, {"warmup": 50, "rate": 2e-3}


def initialize(layer):
    """As Weft draws weights (engine/nn/init.cpp): by the number of inputs that reach an output."""
    back, pointwise = isinstance(layer, nn.ConvTranspose2d), layer.kernel_size == (1, 1)
    inputs = layer.in_channels * math.prod(layer.kernel_size) / math.prod(layer.stride if back else (1, 1))
    bound = math.sqrt((3 if back or pointwise else 6) / inputs)  # twice the variance in front of a ReLU
    nn.init.uniform_(layer.weight, -bound, bound)
    if not pointwise:  # whose bias PyTorch draws as Weft does
        nn.init.zeros_(layer.bias)


class VqVae(nn.Module):
    """models/vq_vae.cpp"""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 4, 2, 1),
                                     nn.ReLU(), nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.ReLU(),
                                     nn.Conv2d(2 * width, dim, 1))
        self.quantizer = VectorQuantize(dim, codes, decay=0.9, commitment_weight=0.25, kmeans_init=True,
                                        kmeans_iters=10, threshold_ema_dead_code=1, rotation_trick=False,
                                        accept_image_fmap=True)
        self.decoder = nn.Sequential(nn.Conv2d(dim, 2 * width, 3, 1, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(width, 1, 4, 2, 1))
        for layer in [*self.encoder, *self.decoder]:
            if not isinstance(layer, nn.ReLU):
                initialize(layer)

    def forward(self, x):
        tokens, indices, loss = self.quantizer(self.encoder(x))
        return self.decoder(tokens), indices, loss.sum()


def tested(network, images):
    """The squared error, and the perplexity of the codes."""
    error, counts = 0.0, torch.zeros(codes)
    network.eval()
    with torch.no_grad():
        for part in images.split(500):
            pixels = part.float() / 255
            made, indices, _ = network(pixels)
            error += F.mse_loss(made, pixels, reduction="sum").item()
            counts += torch.bincount(indices.flatten(), minlength=codes)
    shares = counts[counts > 0] / counts.sum()
    return error / images.numel(), (-(shares * shares.log()).sum()).exp().item()


def main():
    torch.manual_seed(int(sys.argv[1]))
    torch.set_num_threads(1)
    images, network = read("train")[0], VqVae()
    optimizer, in_epoch = torch.optim.Adam(network.parameters()), len(images) // batch
    steps = in_epoch * int(sys.argv[2])
    for step in range(steps):
        if step % in_epoch == 0:
            order = torch.randperm(len(images))
        pixels = images[order[step % in_epoch * batch:][:batch]].float() / 255
        made, _, loss = network(pixels)
        optimizer.param_groups[0]["lr"] = rate_at(schedule, step, steps)
        optimizer.zero_grad()
        (F.mse_loss(made, pixels) + loss).backward()
        optimizer.step()
    error, perplexity = tested(network, read("t10k")[0])
    print(f"squared error on the test set {error:.5f}, perplexity of the codes {perplexity:.1f}")


main()
