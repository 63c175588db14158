#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST in the form of CIFAR-10: 32 x 32, with a colour for each grey value. It stands in for CIFAR-10, which no
package has.

    coloured.py TRAINING TESTS FILE.npz        so many pictures, the first of either part
"""
import sys

import numpy
import torch.nn.functional as F
from fashion_mnist import read


def coloured(images):
    grey = F.interpolate(images.float() / 255, 32, mode="bilinear").numpy()[:, 0]
    return (255 * numpy.stack([grey, grey**2, 1 - abs(2 * grey - 1)], -1)).round().astype("uint8")


def main():
    arrays = {}
    for kind, name, count in ("train", "train", sys.argv[1]), ("t10k", "test", sys.argv[2]):
        images, labels = (part[:int(count)] for part in read(kind))
        arrays |= {f"{name}_images": coloured(images), f"{name}_labels": labels.numpy()}
    numpy.savez(sys.argv[3], **arrays)


main()
