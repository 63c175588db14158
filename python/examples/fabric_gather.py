# SPDX-License-Identifier: Apache-2.0
"""Lightning's Fabric: what its all_gather returns has a gradient only if it is asked for."""
import sys

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from torch import nn

import weft.torch
from contrastive import Towers, batch


def fabric():
    made = Fabric(accelerator="cpu", strategy="ddp", devices=dist.get_world_size(), plugins=TorchElasticEnvironment())
    made.launch()
    return made


def model():
    return fabric().setup_module(Towers())


def loss(model, batch, sync_grads):
    images, texts, scale = model(*batch)
    images_of_all, texts_of_all = (fabric().all_gather(x, sync_grads=sync_grads).view(-1, x.shape[1]) for x in (images, texts))
    labels = len(images) * dist.get_rank() + torch.arange(len(images))
    return sum(nn.functional.cross_entropy(scale * own @ others.T, labels)
               for own, others in ((images, texts_of_all), (texts, images_of_all))) / 2


def step(model, batch):
    return loss(model, batch, sync_grads=True)


def wrong(model, batch):
    return loss(model, batch, sync_grads=False)


if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, uneven=False, truth=step))
