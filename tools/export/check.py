#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains every encoder for a few steps on Fashion-MNIST, exports it, and compares its features with those of PyTorch and
of onnxruntime, and the accuracy of 20 nearest neighbours with that of PyTorch's features. See tools/oracles/run_export.

    tools/export/check.py BUILD FOLDER DATA
"""
import gzip
import json
import pathlib
import re
import subprocess
import sys

import numpy
import onnxruntime
import to_onnx
import torch
import weft_encoder


def ended(*command):
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {run.returncode}\n{run.stderr}")
    return run.stdout


def array(file, header):
    return numpy.frombuffer(gzip.decompress(file.read_bytes()), numpy.uint8, offset=header)


def nearest_neighbours(train, train_labels, test, test_labels):
    """The accuracy of the vote of docs/export.md."""
    train, right = torch.nn.functional.normalize(train).T, 0
    for queries, labels in zip(torch.nn.functional.normalize(test).split(500), test_labels.split(500)):
        similarities, places = (queries @ train).topk(20)
        votes = torch.nn.functional.one_hot(train_labels[places]) * (similarities / 0.1).exp()[..., None]
        right += (votes.sum(1).argmax(1) == labels).sum().item()
    return right / len(test)


def check(network, build, data, folder):
    export, embeddings, onnx = (folder / f"{network}.{end}" for end in ("safetensors", "npy", "onnx"))
    common = ("--ranks", "2", "--data", data, "--quiet")
    # At a higher rate so few steps leave resnet18 with features in nearly one direction, where rounding decides the vote.
    ended(build / "apps/train_contrastive", *common, "--encoder", network, "--steps", "20", "--batch", "200",
          "--rate", "0.0001", "--no-probes", "--out", folder / network, "--export", export)
    said = ended(build / "apps/evaluate", *common, "--json", "--model", export, "--embeddings", embeddings,
                 "--labels-per-class", "0")
    weft, accuracy = numpy.load(embeddings), json.loads(said)["figures"]["20 nearest neighbours"]

    images, labels = [], []
    for part in "train", "t10k":
        pixels = array(data / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1)
        images.append(torch.from_numpy(pixels / numpy.float32(255)))
        labels.append(torch.from_numpy(array(data / f"{part}-labels-idx1-ubyte.gz", 8).astype(numpy.int64)))
    with torch.no_grad():
        encoder = weft_encoder.load(export)
        features = [torch.cat([encoder(some) for some in part.split(1000)]) for part in images]
    to_onnx.save(to_onnx.model_of(export), onnx)
    [by_onnx] = onnxruntime.InferenceSession(onnx).run(None, {"images": images[1].numpy()})

    off_torch, off_onnx = (abs(other - weft).max().item() for other in (features[1].numpy(), by_onnx))
    off_accuracy = abs(nearest_neighbours(features[0], labels[0], features[1], labels[1]) - accuracy)
    print(f"{network}: features to {abs(weft).max():.3g} in {weft.shape}, off by {off_torch:.1e} in PyTorch and {off_onnx:.1e} "
          f"by onnxruntime; nearest neighbours {100 * accuracy:.2f} %, off by {100 * off_accuracy:.2f} points")
    return off_torch < 1e-5 and off_onnx < 1e-4 and off_accuracy <= 0.001


def main():
    build, folder, data = map(pathlib.Path, sys.argv[1:])
    refused = subprocess.run([build / "apps/train_contrastive", "--encoder", "?"], capture_output=True, text=True)
    networks = re.search("among (.*?)[;(\n]", refused.stderr)[1].strip().split(", ")
    return 0 if all([check(network, build, data, folder) for network in networks]) else 1


if __name__ == "__main__":
    sys.exit(main())
