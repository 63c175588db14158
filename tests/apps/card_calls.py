#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what a step of each training program asks of a card, and compares with the table below. The card is the null
card (tests/emulated_card/null_card.h): it counts, and does nothing. Two runs of different lengths differ by steps.

    tests/apps/card_calls.py PROGRAM... [--kernels]

--kernels also prints which kernels a step launches.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# A batch is copied to where the graph reads it.
repeated = {"launches": 0, "graphs": 1, "waits": 0, "uploads": 6, "device copies": 2, "allocations": 0}
# At most so many in a step; what is not named is not limited.
ceilings = {
    "train_contrastive": {"launches": 111, "waits": 0, "device copies": 0, "allocations": 0},
    "train_contrastive --graph --batch 240": repeated,
    "train_contrastive --same-bits": {"launches": 2238, "waits": 0, "device copies": 18, "allocations": 0},
    "train_contrastive --graph --same-bits --batch 240": {**repeated, "uploads": 73, "device copies": 48},  # by block
    "train_clip": {"launches": 130, "waits": 0, "device copies": 1, "allocations": 0},
    "train_clip --graph --batch 240": repeated,
    "train_vq": {"launches": 96, "waits": 0, "device copies": 2, "allocations": 0},
    "train_vqgan_weight": {"launches": 227, "waits": 0, "device copies": 2, "allocations": 0},
}
samples, lengths = 480, (6, 10)  # enough steps for memory to be reused, and for several batches


def calls_of(command, steps, folder):
    counts = folder / "counts.json"
    run = [*command, "--steps", str(steps), "--out", str(folder / "run"), "--fresh", "--quiet"]
    ended = subprocess.run(run, capture_output=True, text=True, env={**os.environ, "WEFT_NULL_CARD": str(counts)})
    if ended.returncode != 0:
        sys.exit(f"{' '.join(map(str, run))} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return json.loads(counts.read_text())


def per_step(short, long):
    return {name: (long[name] - short.get(name, 0)) / (lengths[1] - lengths[0]) for name in long}


def short_name(kernel):
    return re.sub(r"weft::|cuda::|\{anonymous\}::|long int, ", "", kernel)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=pathlib.Path)
    parser.add_argument("--kernels", action="store_true")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make = pathlib.Path(__file__).resolve().with_name("small_data.py")
        subprocess.run([sys.executable, make, folder / "data", "--train", str(samples), "--test", "20"], check=True)
        for what, most in ceilings.items():
            program, *more = what.split()
            for path in (path for path in options.programs if path.name == program):
                command = [path, "--device", "cuda", "--data", folder / "data", *more]
                short, long = (calls_of(command, steps, folder) for steps in lengths)
                kernels = collections.Counter(per_step(short.pop("kernels"), long.pop("kernels")))
                step = per_step(short, long)
                print(f"{what}: " + ", ".join(f"{count:g} {name}" for name, count in step.items()))
                found += [f"{what}: {step[name]:g} {name} in a step, at most {most[name]} are allowed"
                          for name in most if step[name] > most[name]]
                for kernel, launches in kernels.most_common() if options.kernels else ():
                    if launches:
                        print(f"{launches:8g} {short_name(kernel)}")
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
