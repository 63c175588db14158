#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges files with Python's safetensors, both ways, and compares names, types, shapes, bytes and metadata.

    safetensors_files.py PROGRAM [--files 200] [--write FILE]

PROGRAM is tests/safetensors_dump. With --write, only writes the file that is stored as tests/files/python.safetensors.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy
import xxhash
from safetensors import safe_open
from safetensors.numpy import save_file

names = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "int64": "i64", "uint8": "u8"}
types = [numpy.float32, numpy.float64, ml_dtypes.bfloat16, numpy.int64, numpy.uint8]


def kept_file(path):
    save_file({
        "weight": numpy.array([[1.5, -2.25, 3e-40], [numpy.inf, -0.0, 6.0]], numpy.float32),
        "précision \"f64\"\n": numpy.array([1 / 3, -1e300]),
        "half": numpy.array([1.0, -2.5, 3.140625], ml_dtypes.bfloat16),
        "count": numpy.array(-2**62 - 1, numpy.int64),
        "bytes": numpy.array([0, 127, 255], numpy.uint8),
        "empty": numpy.zeros((0, 4), numpy.float32),
    }, path, metadata={"step": "120", "who": "Zoë \\ \"π\" 😀\t"})


def as_weft_reads(program, path):
    lines = subprocess.run([program, "read", path], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")[:-1]
    metadata, *tensors = map(json.loads, lines)
    return metadata, {name: (dtype, shape, data) for name, dtype, shape, data in tensors}


def as_python_reads(path):
    with safe_open(path, "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        return file.metadata() or {}, {name: plain(x) for name, x in tensors.items()}


def plain(x):
    return names[str(x.dtype)], list(x.shape), x.tobytes().hex()


def some_tensors(draw):
    def tensor():
        shape = [draw.choice([0, 1, 2, 3, 5]) for _ in range(draw.randrange(5))]
        dtype = numpy.dtype(draw.choice(types))
        return numpy.frombuffer(draw.randbytes(dtype.itemsize * int(numpy.prod(shape))), dtype).reshape(shape)
    alphabet = "az.09 \"\\/\n\0\x7fé€😀"
    word = lambda: "".join(draw.choices(alphabet, k=draw.randrange(1, 8)))
    return {word(): tensor() for _ in range(draw.randrange(6))}, {word(): word() for _ in range(draw.randrange(4))}


def checksum_complaints(path):
    """Verifies the checksums as docs/checkpoints.md describes them, with Python's XXH64."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    text, rest = data[8:8 + length], data[8 + length:]
    header = json.loads(text)
    own, *sums = header.pop("__metadata__")["weft.xxh64"].split()
    if xxhash.xxh64(text.replace(own.encode(), b"0" * 16, 1)).hexdigest() != own:
        yield "the header's checksum is not XXH64 of its text"
    for (name, entry), expected in zip(header.items(), sums, strict=True):
        if xxhash.xxh64(rest[slice(*entry["data_offsets"])]).hexdigest() != expected:
            yield f"the checksum of {name!r} is not XXH64 of its bytes"


def complaints(program, folder, files):
    ours = folder / "weft.safetensors"
    subprocess.run([program, "write", ours], check=True)
    yield from checksum_complaints(ours)
    metadata, tensors = as_python_reads(ours)
    del metadata["weft.xxh64"]
    if (metadata, tensors) != as_weft_reads(program, ours):
        yield "Python reads the file of Weft otherwise than Weft does"
    draw = random.Random(1)
    for number in range(files):
        theirs = folder / "python.safetensors"
        tensors, metadata = some_tensors(draw)
        save_file(tensors, theirs, metadata or None)  # without tensors, {} would make it write invalid JSON
        if as_weft_reads(program, theirs) != (metadata, {name: plain(x) for name, x in tensors.items()}):
            yield f"Weft reads file {number} of Python otherwise than it was written"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--write")
    options = parser.parse_args()
    if options.write:
        return kept_file(options.write)
    with tempfile.TemporaryDirectory() as folder:
        found = list(complaints(options.program, pathlib.Path(folder), options.files))
    print("\n".join(found) or f"Weft and Python read each other's files: {options.files + 1} compared")
    return 1 if found else 0


sys.exit(main())
