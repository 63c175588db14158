#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the same pictures in every format that --data takes, with nothing but Python's own library.

    tests/apps/picture_sets.py FOLDER [--count 120]

FOLDER/png and FOLDER/unlabelled are folders of PNG files, and FOLDER/cifar, set.npy, set.npz and idx hold many pictures
in a file. FOLDER/captions.csv and captions.jsonl describe the PNG files.
"""
import argparse
import gzip
import json
import math
import pathlib
import random
import struct
import zipfile
import zlib


def picture(label, side, draw):
    """Coloured stripes, as rows of red, green and blue."""
    phase, angle = draw.uniform(0, 6), label * math.pi / 5
    return [bytes(int(127 + 100 * math.sin((x * math.cos(angle + c) + y * math.sin(angle + c)) / 2 + phase) + draw.uniform(0, 20))
                  for x in range(side) for c in range(3)) for y in range(side)]


def png(rows):
    """The bytes of a PNG file of such rows."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def npy(values, descr, shape):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + values


def write(folder, count):
    draw = random.Random(1)
    side = 32
    labels = [i % 10 for i in range(count)]
    pictures = [picture(label, side, draw) for label in labels]
    captions = []
    for i, (label, rows) in enumerate(zip(labels, pictures)):
        for name in f"png/kind {label}/{i}.png", f"unlabelled/{i}.png":
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(png(rows))
        captions.append((f"kind {label}/{i}.png", f"{'wide' if i % 2 else 'narrow'} stripes of kind {label}, as they are"))
    (folder / "captions.csv").write_text("image,caption\n" + "".join(f'{file},"{text}"\n' for file, text in captions))
    (folder / "captions.jsonl").write_text("".join(json.dumps({"file_name": file, "text": text}) + "\n" for file, text in captions))

    whole = b"".join(b"".join(rows) for rows in pictures)
    images, numbers = npy(whole, "|u1", (count, side, side, 3)), npy(struct.pack(f"<{count}q", *labels), "<i8", (count,))
    (folder / "set.npy").write_bytes(images)
    with zipfile.ZipFile(folder / "set.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x_train.npy", images)
        archive.writestr("y_train.npy", numbers)
    planes = [b"".join(bytes([label]) + b"".join(b"".join(rows)[c::3] for c in range(3)) for label, rows in part)
              for part in (list(zip(labels, pictures))[:-count // 6], list(zip(labels, pictures))[-count // 6:])]
    (folder / "cifar").mkdir(exist_ok=True)
    (folder / "cifar/data_batch_1.bin").write_bytes(planes[0])
    (folder / "cifar/test_batch.bin").write_bytes(planes[1])
    (folder / "idx").mkdir(exist_ok=True)
    (folder / "idx/images").write_bytes(gzip.compress(struct.pack(">IIIII", 0x804, count, side, side, 3) + whole))
    (folder / "idx/labels").write_bytes(struct.pack(">II", 0x801, count) + bytes(labels))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=120)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    write(options.folder, options.count)


if __name__ == "__main__":
    main()
