# SPDX-License-Identifier: Apache-2.0
"""An encoder that Weft has exported, as a PyTorch module: features = load("encoder.safetensors")(images). The images are
(n, height, width, channels) with values pixels / 255. docs/export.md describes the file, its layers and their names."""
import torch
from safetensors import safe_open
from torch.nn import Module, ParameterDict, functional as f

class Encoder(Module):
    def __init__(self, words, weights):
        super().__init__()
        self.words, self.weights = words, ParameterDict({name.replace(".", "_"): value.float() for name, value in weights.items()})

    def weight(self, name): return self.weights[name] if name in self.weights else None
    def norm(self, x, name): return f.layer_norm(x, x.shape[-1:], self.weight(name + "_gamma"), self.weight(name + "_beta"), float(self.words["encoder.epsilon"]))
    def linear(self, x, i): return f.relu(self.norm(f.linear(x, self.weight(f"encoder_{i}_weight").T, self.weight(f"encoder_{i}_bias")), f"encoder_{i + 1}"))
    def convolution(self, x, name, stride):
        weight = self.weight(name + "_weight").permute(3, 2, 0, 1)  # from (height, width, in, out) to PyTorch's order
        return f.conv2d(x.permute(0, 3, 1, 2), weight, self.weight(name + "_bias"), stride, weight.shape[-1] // 2).permute(0, 2, 3, 1)
    def layer(self, x, name, i, stride): return f.relu(self.norm(self.convolution(x, f"{name}_{i}", stride), f"{name}_{i + 1}"))
    def block(self, x, name, stride):
        y = f.relu(self.norm(self.convolution(x, name + "_first", stride), name + "_first_norm"))
        y = self.norm(self.convolution(y, name + "_second", 1), name + "_second_norm")
        has_shortcut = name + "_shortcut_weight" in self.weights
        return f.relu(y + (self.norm(self.convolution(x, name + "_shortcut", stride), name + "_shortcut_norm") if has_shortcut else x))
    def parts(self, x):
        counts = [min(int(self.words["encoder.parts"]), side) for side in x.shape[1:3]]
        strides = [side // count for side, count in zip(x.shape[1:3], counts)]
        kernels = [side - stride * (count - 1) for side, stride, count in zip(x.shape[1:3], strides, counts)]
        return [f.max_pool2d(x.permute(0, 3, 1, 2), kernels, strides).permute(0, 2, 3, 1).flatten(1), x.mean((1, 2))]
    def forward(self, x):
        network, features = self.words["encoder.network"], []
        if network == "mlp": return self.linear(self.linear(x.flatten(1), 1), 3)
        for stage in range(5 if network == "resnet18" else 3):
            name, i = ("encoder", 2 * stage) if network == "conv" else (f"encoder_stage{stage}", 0)
            blocks = 0 if stage == 0 else {"residual": 1, "resnet18": 2}.get(network, 0)
            stride = 1 if network == "resnet18" and stage < 2 else 2
            if blocks == 0: x = self.layer(x, name, i, stride)
            for block in range(blocks): x = self.block(x, f"{name}_{block}", 1 if block else stride)
            if network in ("stages", "residual"): features += self.parts(x)
        return torch.cat(features or [x.mean((1, 2))] + [x.amax((1, 2))] * (network == "conv"), 1)

def load(file):
    with safe_open(file, "pt") as export:
        return Encoder(export.metadata(), {name: export.get_tensor(name) for name in export.keys()}).eval()
