#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST in the form of CIFAR-10: 32 x 32, each picture between two random colours, which say nothing about its
class. It stands in for CIFAR-10, which no package has.

    coloured.py TRAINING TESTS FILE.npz        so many pictures, the first of either part
"""
import sys

import numpy
import torch.nn.functional as F
from fashion_mnist import read


def coloured(images, seed):
    grey = F.interpolate(images.float(), 32, mode="bilinear").round().numpy()[:, 0, :, :, None] / 255
    dark, light = numpy.random.default_rng(seed).uniform(0, 1, (2, len(images), 1, 1, 3)).astype("float32")
    return (255 * (dark * 0.5 * (1 - grey) + (0.5 + 0.5 * light) * grey)).round().astype("uint8")


def main():
    arrays = {}
    for number, (kind, name, count) in enumerate((("train", "train", sys.argv[1]), ("t10k", "test", sys.argv[2]))):
        images, labels = (part[:int(count)] for part in read(kind))
        arrays |= {f"{name}_images": coloured(images, number), f"{name}_labels": labels.numpy()}
    numpy.savez(sys.argv[3], **arrays)


main()
