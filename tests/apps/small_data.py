#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small data set in the format of Fashion-MNIST: ten kinds of stripes and rings at varying places and greys.

    tests/apps/small_data.py FOLDER [--train 480] [--test 160]
"""
import argparse
import gzip
import math
import pathlib
import random
import struct


def picture(label, draw):
    x0, y0, grey = draw.uniform(-3, 3), draw.uniform(-3, 3), draw.uniform(120, 255)
    period, angle = 4 + label % 5 * 2, label * math.pi / 10

    def pixel(y, x):
        u, v = x - 13.5 - x0, y - 13.5 - y0
        wave = math.hypot(u, v) if label < 5 else u * math.cos(angle) + v * math.sin(angle)
        return int(min(255, max(0, grey * (0.5 + 0.5 * math.cos(2 * math.pi * wave / period)) + draw.gauss(0, 12))))
    return bytes(pixel(y, x) for y in range(28) for x in range(28))


def write(folder, name, count, draw):
    labels = bytes(i % 10 for i in range(count))
    pictures = b"".join(picture(label, draw) for label in labels)
    for kind, header, values in ((f"{name}-images-idx3-ubyte.gz", (0x803, count, 28, 28), pictures),
                                 (f"{name}-labels-idx1-ubyte.gz", (0x801, count), labels)):
        with gzip.open(folder / kind, "wb", compresslevel=1) as file:
            file.write(struct.pack(f">{len(header)}I", *header) + values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=480)
    parser.add_argument("--test", type=int, default=160)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    write(options.folder, "train", options.train, draw)
    write(options.folder, "t10k", options.test, draw)


main()
