#!/usr/bin/env python3
"""Trains every program for 20 steps, on each kind of CPU that this machine has, as threads and as processes, also of
several kinds in one job. All must end in the weights whose hashes are stored in golden.json, in f32 and in f64.

    tests/apps/golden.py PROGRAM ... [--kinds base v3 v4] [--mpiexec NAME] [--run-by 'qemu-aarch64 ...'] [--dtypes f32 f64]
                         [--store]
"""
import argparse
import gzip
import json
import os
import pathlib
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile

options_of = {"train_contrastive": ["--batch", "24", "--width", "2", "--no-probes"],
              "train_clip": ["--batch", "24", "--width", "2"],
              "train_vq": ["--batch", "24", "--width", "2"],
              "train_vqgan_weight": ["--batch", "6", "--width", "2"]}


def write_data(folder):
    """Whole numbers from Python's own generator, which are the same everywhere."""
    draw = random.Random(1)
    for name, count in (("train", 96), ("t10k", 32)):
        labels = bytes(i % 10 for i in range(count))
        pictures = b"".join(bytes((label * 23 + draw.randrange(40) + 8 * (x if label < 5 else y)) % 256
                                  for y in range(28) for x in range(28)) for label in labels)
        for kind, header, values in (("images-idx3", (0x803, count, 28, 28), pictures),
                                     ("labels-idx1", (0x801, count), labels)):
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(
                gzip.compress(struct.pack(f">{len(header)}I", *header) + values))


def runs_here(program, kind):
    asked = subprocess.run([program, "--version"], env=os.environ | {"WEFT_CPU": kind}, capture_output=True, text=True)
    if asked.returncode and "this machine lacks" not in asked.stderr:
        sys.exit(f"{kind}: {asked.stderr}")
    print(asked.stderr, end="")
    return asked.returncode == 0


class Trainings:
    def __init__(self, options, folder):
        self.options, self.folder, self.count = options, folder, 0

    def weights(self, command):
        ended = subprocess.run(command, capture_output=True, text=True)
        found = re.search(r"weights ([0-9a-f]{16})", ended.stdout)
        return found[1] if found else f"exit code {ended.returncode}: {ended.stderr.strip()}"

    def command(self, program, dtype, kind, *more):
        kind = ["env", f"WEFT_CPU={kind}"] if kind else []
        return [*kind, *self.options.run_by, program, *options_of[pathlib.Path(program).name], "--dtype", dtype,
                "--steps", "20", "--data", self.folder, "--out", f"{self.folder}/{self.count}", "--quiet", *more]

    def ways(self, program, dtype):
        """What each is called, and its weights."""
        for kind in self.options.kinds:
            self.count += 1
            yield f"kernels for {kind}", self.weights(self.command(program, dtype, kind))
        for ranks in (1, 2, 3, 4) if not self.options.run_by else (1, 2):
            self.count += 1
            yield f"{ranks} threads", self.weights(self.command(program, dtype, None, "--ranks", str(ranks)))
        if self.options.mpiexec:
            self.count += 1
            ranks = [["-n", "1", *self.command(program, dtype, kind)] for kind in self.options.kinds]
            parts = [word for rank in ranks for word in [":", *rank]][1:]
            yield f"processes for {', '.join(self.options.kinds)}", self.weights([self.options.mpiexec, *parts])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--kinds", nargs="*", default=[])
    parser.add_argument("--mpiexec")
    parser.add_argument("--run-by", type=shlex.split, default=[])
    parser.add_argument("--dtypes", nargs="+", default=["f32", "f64"])
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    stored = pathlib.Path(__file__).with_name("golden.json")
    golden = json.loads(stored.read_text())
    options.kinds = [kind for kind in options.kinds if runs_here(options.programs[0], kind)]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        write_data(pathlib.Path(folder))
        trainings = Trainings(options, folder)
        for program in options.programs:
            name = pathlib.Path(program).name
            for dtype in options.dtypes:
                for way, weights in trainings.ways(program, dtype):
                    if options.store:
                        golden[name][dtype] = weights
                        break
                    good = weights == golden[name][dtype]
                    bad += not good
                    print(f"{name}, {dtype}, {way}: {weights}{'' if good else '  !'}", flush=True)
    if options.store:
        stored.write_text(json.dumps(golden, indent=2) + "\n")
    print("all weights are as stored" if bad == 0 else f"{bad} differ")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
