# SPDX-License-Identifier: Apache-2.0
"""What a recipe of apps/recipes says, in PyTorch: its options, network and learning rate. Knows pairs of views with
NT-Xent, AdamW, the schedule one-cycle, and the encoders conv, stages and resnet18."""
import math
import tomllib

import torch
import torch.nn.functional as F
from torch import nn
from torch_views import usual as usual_views

usual = usual_views | {"encoder": "conv", "width": 32, "parts": 2, "temperature": 0.1, "epochs": 3, "batch": 250,
                       "rate": 1e-2, "weight-decay": 1e-4, "warmup": 50}


def read_recipe(path):
    with open(path, "rb") as file:
        return usual | tomllib.load(file)


class ChannelNorm(nn.LayerNorm):
    """Layer norm of the channels of each pixel."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convolution(before, after, stride):
    return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1), ChannelNorm(after), nn.ReLU(inplace=True))


class ResidualBlock(nn.Module):
    """models/residual_block.cpp"""

    def __init__(self, before, after, stride):
        super().__init__()
        self.changed = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), ChannelNorm(after), nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), ChannelNorm(after))
        self.shortcut = nn.Identity() if before == after and stride == 1 else nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), ChannelNorm(after))

    def forward(self, x):
        return F.relu(self.changed(x) + self.shortcut(x), inplace=True)


def stages_of(options, channels):
    """The parts of the network that models/encoders.cpp calls stages."""
    width = options["width"]
    if options["encoder"] != "resnet18":
        sizes = [channels, width, 2 * width, 4 * width]
        return [convolution(before, after, 2) for before, after in zip(sizes, sizes[1:])]
    stages, before = [convolution(channels, width, 1)], width
    for after, stride in (width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2):
        stages.append(nn.Sequential(ResidualBlock(before, after, stride), ResidualBlock(after, after, 1)))
        before = after
    return stages


class Encoder(nn.Module):
    """models/encoders.cpp and models/stages.cpp"""

    def __init__(self, options, channels):
        super().__init__()
        self.kind, self.parts = options["encoder"], options["parts"]
        self.stages = nn.ModuleList(stages_of(options, channels))

    def described(self, x):
        count = min(self.parts, x.shape[2])
        stride = x.shape[2] // count
        kernel = x.shape[2] - stride * (count - 1)
        if torch.compiler.is_compiling():  # what it makes of max_pool2d for AVX2 fails: index out of bounds
            places = [stride * i for i in range(count)]
            maxima = torch.cat([x[:, :, i:i + kernel, j:j + kernel].amax((2, 3)) for i in places for j in places], 1)
        else:
            maxima = F.max_pool2d(x, kernel, stride).flatten(1)
        return [maxima, x.mean((2, 3))]

    def forward(self, x):
        features = []
        for stage in self.stages:
            x = stage(x)
            if self.kind == "stages":
                features += self.described(x)
        return torch.cat(features or ([x.mean((2, 3))] + ([x.amax((2, 3))] if self.kind == "conv" else [])), 1)


def initialized(network):
    """With weights drawn as Weft draws them (engine/nn/init.cpp), which are larger than PyTorch's by the root of three."""
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="linear")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network


def network_of(options, picture):
    """An encoder and the head of apps/train_contrastive.cpp, for pictures like this (1, channels, height, width)."""
    encoder = Encoder(options, picture.shape[1])
    features = encoder(picture).shape[1]
    return initialized(nn.Sequential(
        encoder, nn.Sequential(nn.Linear(features, 256), nn.LayerNorm(256), nn.ReLU(inplace=True), nn.Linear(256, 64))))


def rate_at(options, step, steps):
    rising = min(options["warmup"], steps // 2)
    if step < rising:
        return options["rate"] * (step + 1) / (rising + 1)
    return options["rate"] * (1 + math.cos(math.pi * (step - rising) / (steps - rising))) / 2
