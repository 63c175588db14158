#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on the same pictures in every format that --data takes, on 1 and 3 ranks, as threads and as processes, and
expects the same weights of each format with --same-bits, and the same of formats that hold the same training pictures.

    tests/apps/formats.py TRAIN_CONTRASTIVE TRAIN_CLIP TRAIN_VQ [--mpiexec NAME]
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

failures = 0


def check(name, ok, said=""):
    global failures
    if not ok:
        failures += 1
        print(f"FAILED: {name}\n{said}")


def hash_of(program, ranks, mpiexec, folder, given):
    out = folder / "run"
    words = {"--batch": 30, "--steps": 2, "--width": 2, "--out": out, "--same-bits": None, "--fresh": None, **given}
    options = [str(word) for pair in words.items() for word in pair if word is not None]
    launcher, threads = ([mpiexec, "-n", str(ranks)], []) if mpiexec else ([], ["--ranks", str(ranks)])
    run = subprocess.run([*launcher, program, *threads, *options], capture_output=True, text=True, timeout=60)
    found = re.search(r"hash of the weights ([0-9a-f]{16})", run.stdout)
    check(f"{program.name} {given} on {ranks} ranks ends with {run.returncode}", run.returncode == 0 and found, run.stdout + run.stderr)
    return found[1] if found else None, run.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, nargs=3)
    parser.add_argument("--mpiexec")
    options = parser.parse_args()
    contrastive, clip, vq = options.programs
    with tempfile.TemporaryDirectory(prefix="weft_formats_") as name:
        folder = pathlib.Path(name)
        make = pathlib.Path(__file__).resolve().with_name("picture_sets.py")
        subprocess.run([sys.executable, make, folder], check=True)
        ways = [(1, None), (3, None)] + [(3, options.mpiexec)] * bool(options.mpiexec)
        hashes = {}
        for program, data, more, said in (
                (contrastive, "png", {}, ["png: ", "10 classes", "32 x 32, coloured", "linear probe"]),
                (contrastive, "unlabelled", {}, ["without classes", "so probes and nearest neighbours are left out"]),
                (contrastive, "png", {"--size": 20}, ["every picture is resized to 20 x 20"]),
                (contrastive, "cifar", {"--no-probes": None}, ["CIFAR-10: 100 pictures for training and 20 for tests"]),
                (contrastive, "set.npy", {}, ["set: 108 pictures", "images, which has no labels"]),
                (contrastive, "set.npz", {"--no-probes": None}, ["images are the array x_train, labels are y_train"]),
                (contrastive, "idx", {"--no-probes": None}, ["idx: 108 pictures for training and 12 for tests"]),
                (vq, "cifar", {}, ["A VQ-VAE on CIFAR-10"]),
                (clip, "png", {}, ["zero-shot test accuracy"]),
                (clip, "png", {"--captions": folder / "captions.csv"}, ["test pictures whose caption is the nearest"]),
                (clip, "png", {"--captions": folder / "captions.jsonl"}, ["18 words in the training captions"])):
            given = {"--data": folder / data, **more}
            of_ways = [hash_of(program, ranks, mpiexec, folder, given) for ranks, mpiexec in ways]
            check(f"{program.name} {data} {more}: the same weights on any ranks: {of_ways}", len({h for h, _ in of_ways}) == 1)
            for text in said:
                check(f"{program.name} {data} {more} says {text}", all(text in out for _, out in of_ways), of_ways[0][1])
            hashes[program.name, data, *map(str, more.values())] = of_ways[0][0]
        of_arrays = [h for (_, data, *_), h in hashes.items() if data in ("set.npy", "set.npz", "idx")]
        check(f"arrays and IDX files hold the same: {of_arrays}", len(of_arrays) == 3 and len(set(of_arrays)) == 1)
        of_captions = [h for key, h in hashes.items() if "captions" in key[-1]]
        check(f"CSV and JSONL say the same: {of_captions}", len(of_captions) == 2 and len(set(of_captions)) == 1)
    print(f"{failures} not as they should be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
