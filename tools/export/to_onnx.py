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

    def convolution(self, i, **sliding):
        self.add("Transpose", perm=[0, 3, 1, 2])
        self.add("Conv", self.tensor(f"{i}.weight", (3, 2, 0, 1)), self.tensor(f"{i}.bias"), **sliding)
        self.add("Transpose", perm=[0, 2, 3, 1])

    def linear(self, i):
        self.add("Gemm", self.tensor(f"{i}.weight"), self.tensor(f"{i}.bias"))

    def norm_and_relu(self, i):
        self.add("LayerNormalization", self.tensor(f"{i}.gamma"), self.tensor(f"{i}.beta"), epsilon=self.epsilon)
        self.add("Relu")

    def mean_and_maximum(self):
        x = self.last
        parts = [self.add(operation, on=[x], axes=[1, 2], keepdims=0) for operation in ("ReduceMean", "ReduceMax")]
        self.add("Concat", on=parts, axis=1)


def conv(graph):
    for i in (0, 2, 4):
        graph.convolution(i, strides=[2, 2], pads=[1, 1, 1, 1])
        graph.norm_and_relu(i + 1)
    graph.mean_and_maximum()


def mlp(graph):
    graph.add("Flatten")
    for i in (1, 3):
        graph.linear(i)
        graph.norm_and_relu(i + 1)


networks = {"conv": conv, "mlp": mlp}


def model_of(file):
    with safe_open(file, "pt") as export:
        words, graph = export.metadata(), Graph(export)
        networks[words["encoder.network"]](graph)
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
