# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST's four files as PyTorch's tensors, for the twins of this folder."""
import gzip
import os

import torch


def read(kind):
    """Of `train` or `t10k`: the images (n, 1, 28, 28), bytes, and their labels."""
    folder = os.environ.get("WEFT_DATA", "/usr/share/datasets/fashion-mnist")
    with gzip.open(f"{folder}/{kind}-images-idx3-ubyte.gz") as file:
        images = torch.frombuffer(bytearray(file.read()[16:]), dtype=torch.uint8).view(-1, 1, 28, 28)
    with gzip.open(f"{folder}/{kind}-labels-idx1-ubyte.gz") as file:
        return images, torch.frombuffer(bytearray(file.read()[8:]), dtype=torch.uint8).long()
