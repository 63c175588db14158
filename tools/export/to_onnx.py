#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an encoder that Weft has exported as an ONNX model, from images f32 (n, height, width, channels) with values
pixels / 255 to features (n, features). Needs Python's packages onnx, numpy, safetensors and torch.

    tools/export/to_onnx.py encoder.safetensors encoder.onnx
"""
import sys

from onnx import TensorProto, checker, helper, numpy_helper, save
from safetensors import safe_open


class Graph:
    """Nodes one after the other, each with the result of the one before as its first input."""

    def __init__(self, export):
        self.export, self.epsilon = export, float(export.metadata()["encoder.epsilon"])
        self.nodes, self.constants, self.last = [], [], "images"

    def add(self, operation, *more, on=None, **attributes):
        result = f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, on or [self.last, *more], [result], **attributes))
        self.last = result
        return result

    def tensor(self, name, order=None):
        value = self.export.get_tensor("encoder." + name).float()
        value = value.permute(order) if order else value
        self.constants.append(numpy_helper.from_array(value.contiguous().numpy(), name))
        return name

    def has(self, name):
        return "encoder." + name in self.export.keys()

    def convolution(self, name, stride):
        reach = self.export.get_slice(f"encoder.{name}.weight").get_shape()[0] // 2
        inputs = [self.tensor(f"{name}.weight", (3, 2, 0, 1))]
        if self.has(f"{name}.bias"):
            inputs.append(self.tensor(f"{name}.bias"))
        self.add("Transpose", perm=[0, 3, 1, 2])
        self.add("Conv", *inputs, strides=[stride, stride], pads=[reach] * 4)
        return self.add("Transpose", perm=[0, 2, 3, 1])

    def linear(self, i):
        self.add("Gemm", self.tensor(f"{i}.weight"), self.tensor(f"{i}.bias"))

    def norm(self, name):
        return self.add("LayerNormalization", self.tensor(f"{name}.gamma"), self.tensor(f"{name}.beta"), epsilon=self.epsilon)

    def relu(self):
        return self.add("Relu")

    def mean(self, x):
        return self.add("ReduceMean", on=[x], axes=[1, 2], keepdims=0)


def layer(graph, name, stride, i=0):
    graph.convolution(f"{name}{i}", stride)
    graph.norm(f"{name}{i + 1}")
    return graph.relu()


def block(graph, name, stride):
    x = graph.last
    graph.convolution(name + "first", stride)
    graph.norm(name + "first_norm")
    graph.relu()
    graph.convolution(name + "second", 1)
    y = graph.norm(name + "second_norm")
    if graph.has(name + "shortcut.weight"):
        graph.last = x
        graph.convolution(name + "shortcut", stride)
        x = graph.norm(name + "shortcut_norm")
    graph.add("Add", on=[y, x])
    return graph.relu()


def mlp(graph, _):
    graph.add("Flatten")
    for i in (1, 3):
        graph.linear(i)
        graph.norm(i + 1)
        graph.relu()


def conv(graph, _):
    for i in (0, 2, 4):
        x = layer(graph, "", 2, i)
    graph.add("Concat", on=[graph.mean(x), graph.add("ReduceMax", on=[x], axes=[1, 2], keepdims=0)], axis=1)


def stages(graph, words):
    """Also residual: of each stage the maxima of parts of the picture, and its mean."""
    sides, features = [int(words["picture.height"]), int(words["picture.width"])], []
    for stage in range(3):
        residual = stage > 0 and words["encoder.network"] == "residual"
        x = block(graph, f"stage{stage}.0.", 2) if residual else layer(graph, f"stage{stage}.", 2)
        sides = [(side + 1) // 2 for side in sides]
        counts = [min(int(words["encoder.parts"]), side) for side in sides]
        strides = [side // count for side, count in zip(sides, counts)]
        graph.add("Transpose", perm=[0, 3, 1, 2])
        graph.add("MaxPool", strides=strides, kernel_shape=[side - stride * (count - 1) for side, stride, count in zip(sides, strides, counts)])
        graph.add("Transpose", perm=[0, 2, 3, 1])
        features += [graph.add("Flatten"), graph.mean(x)]
        graph.last = x
    graph.add("Concat", on=features, axis=1)


def resnet18(graph, _):
    x = layer(graph, "stage0.", 1)
    for stage in range(1, 5):
        for i in range(2):
            x = block(graph, f"stage{stage}.{i}.", 2 if stage > 1 and i == 0 else 1)
    graph.mean(x)


networks = {"conv": conv, "mlp": mlp, "stages": stages, "residual": stages, "resnet18": resnet18}


def model_of(file):
    with safe_open(file, "pt") as export:
        words, graph = export.metadata(), Graph(export)
        networks[words["encoder.network"]](graph, words)
        graph.add("Identity")
        graph.nodes[-1].output[0] = "features"
        image = [int(words["picture." + side]) for side in ("height", "width", "channels")]
        inputs = [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", *image])]
        outputs = [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", int(words["encoder.features"])])]
        whole = helper.make_graph(graph.nodes, "encoder", inputs, outputs, graph.constants)
        model = helper.make_model(whole, producer_name="weft", ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        helper.set_model_props(model, {key: value for key, value in words.items() if key != "weft.xxh64"})
        checker.check_model(model, full_check=True)
        return model


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    save(model_of(sys.argv[1]), sys.argv[2])
