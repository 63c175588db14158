# SPDX-License-Identifier: Apache-2.0
"""vector-quantize-pytorch: a straight-through estimator is judged by what autograd makes of it on one process."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from vector_quantize_pytorch import VectorQuantize

import weft.torch


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(4, 6)
        self.quantizer = VectorQuantize(dim=4, codebook_size=8, learnable_codebook=True, ema_update=False)

    def forward(self, x):
        quantized, _, commitment = self.quantizer(self.encoder(x)[None])
        return self.decoder(quantized[0]), commitment.sum()


def model():
    return nn.parallel.DistributedDataParallel(Autoencoder())


def step(model, batch):
    count = torch.tensor(float(len(batch)))
    dist.all_reduce(count)
    decoded, commitment = model(batch)
    return (nn.functional.mse_loss(decoded, batch) + commitment) * len(batch) * dist.get_world_size() / count


def wrong(model, batch):
    decoded, commitment = model(batch)
    return nn.functional.mse_loss(decoded, batch) + commitment


batch = torch.randn(48, 6)

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch))
