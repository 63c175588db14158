#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains every program for 20 steps on each kind of CPU that this machine has, as threads, as processes, and with
several kinds in one job. All must end with the weights whose hashes are in golden.json, in f32 and in f64: with
--same-bits one hash, otherwise one for each number of ranks. An emulator is slow, so its trainings are shorter, with
hashes of their own: one wrong bit changes nearly every weight in the step after it.

    tests/apps/golden.py PROGRAM ... [--kinds base v3 v4] [--mpiexec NAME] [--run-by 'qemu-aarch64 ...'] [--dtypes f32 f64]
                         [--store]

--store stores the hash of the first run of each configuration, and compares the other runs with it.
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
fewer_codes = {"train_vq": ["--codes", "64"]}


def write_data(folder):
    """Integers from Python's own generator, which are equal on all machines."""
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
        failure = f"exit code {ended.returncode}: {ended.stderr.strip()}"
        if not found and self.options.store:
            sys.exit(failure)
        return found[1] if found else failure

    def command(self, program, dtype, kind, *more):
        kind = ["env", f"WEFT_CPU={kind}"] if kind else []
        small = options_of[pathlib.Path(program).name]
        return [*kind, *self.options.run_by, program, *small, "--device", "cpu", "--dtype", dtype, "--quiet",
                "--data", self.folder, "--out", f"{self.folder}/{self.count}", *more]

    def on_threads(self, program, dtype, kind, ranks, *more):
        self.count += 1
        name = f"{ranks} threads" + (f" for {kind}" if kind else "")
        return name, self.weights(self.command(program, dtype, kind, "--ranks", str(ranks), *more))

    def on_processes(self, program, dtype, ranks, *more):
        """Runs processes on all kinds of CPU in turn."""
        self.count += 1
        kinds = [self.options.kinds[rank % len(self.options.kinds)] for rank in range(ranks)]
        parts = [word for kind in kinds for word in (":", "-n", "1", *self.command(program, dtype, kind, *more))]
        return f"processes for {', '.join(kinds)}", self.weights([self.options.mpiexec, *parts[1:]])

    def ways(self, program, dtype):
        """Yields, for each run, the name of its expected weights, its own name and its weights."""
        kinds, processes = self.options.kinds, bool(self.options.mpiexec and self.options.kinds)
        # Exact sums are most of an emulator's work, and every rank makes all of them, so one rank does.
        short = ["--steps", "2", *fewer_codes.get(pathlib.Path(program).name, [])]
        yield "short --same-bits", *self.on_threads(program, dtype, None, 1, *short, "--same-bits")
        for ranks in 1, 2:
            yield f"short --ranks {ranks}", *self.on_threads(program, dtype, None, ranks, *short)
        if self.options.run_by:
            return
        whole, same = ["--steps", "20"], ["--steps", "20", "--same-bits"]
        for kind in kinds:
            yield "--same-bits", *self.on_threads(program, dtype, kind, 2, *same)
        for ranks in 1, 2, 3, 6:
            yield "--same-bits", *self.on_threads(program, dtype, None, ranks, *same)
        if processes:
            yield "--same-bits", *self.on_processes(program, dtype, len(kinds), *same)
        for ranks in 1, 2, 3:
            for kind in kinds or [None]:
                yield f"--ranks {ranks}", *self.on_threads(program, dtype, kind, ranks, *whole)
            if processes and ranks > 1:
                yield f"--ranks {ranks}", *self.on_processes(program, dtype, ranks, *whole)


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
            if options.store:
                golden[name] = {}
            for dtype in options.dtypes:
                for stored_as, way, weights in trainings.ways(program, dtype):
                    if options.store:
                        golden[name].setdefault(stored_as, {}).setdefault(dtype, weights)
                    good = weights == golden[name][stored_as][dtype]
                    bad += not good
                    print(f"{name}, {dtype}, {stored_as}, {way}: {weights}{'' if good else '  !'}", flush=True)
    if options.store:
        stored.write_text(json.dumps(golden, indent=2) + "\n")
    print("all weights are as stored" if bad == 0 else f"{bad} differ")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
