# SPDX-License-Identifier: Apache-2.0
"""An encoder that Weft has exported, as a PyTorch module: features = load("encoder.safetensors")(images). The images are
(n, height, width, channels) with values pixels / 255. docs/export.md describes the file, and says how to add a network."""
import torch
from safetensors import safe_open
from torch import nn


class ChannelsFirst(nn.Sequential):
    def forward(self, x):
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class MeanAndMaximum(nn.Module):
    def forward(self, x):
        return torch.cat([x.mean((1, 2)), x.amax((1, 2))], 1)


def filled(module, weight, bias):
    module.load_state_dict({"weight": weight, "bias": bias})
    return module


def load(file):
    with safe_open(file, "pt") as export:
        words, get = export.metadata(), lambda name: export.get_tensor("encoder." + name).float()
        linear = lambda i: filled(nn.Linear(*get(f"{i}.weight").shape), get(f"{i}.weight").T, get(f"{i}.bias"))
        norm = lambda i: filled(nn.LayerNorm(len(get(f"{i}.beta")), float(words["encoder.epsilon"])), get(f"{i}.gamma"), get(f"{i}.beta"))

        def convolution(i, **sliding):
            weight = get(f"{i}.weight").permute(3, 2, 0, 1)  # from (height, width, in, out) to PyTorch's order
            return ChannelsFirst(filled(nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2:], **sliding), weight, get(f"{i}.bias")))

        networks = {"conv": lambda: [layer for i in (0, 2, 4) for layer in (convolution(i, stride=2, padding=1), norm(i + 1), nn.ReLU())] + [MeanAndMaximum()],
                    "mlp": lambda: [nn.Flatten(), linear(1), norm(2), nn.ReLU(), linear(3), norm(4), nn.ReLU()]}
        return nn.Sequential(*networks[words["encoder.network"]]()).eval()
