#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs training programs on a card with --graph and without it, and compares the weights. Expects an error that names
the reason where a card cannot repeat a step.

    tests/apps/graphs.py PROGRAM...
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

samples, batch, steps = 28, 8, 9  # the last batch of an epoch has four samples
refused = "cuda: a step in a graph cannot "

# Options of each program with which a step is repeated.
repeated = {
    "train_contrastive": ["", "--same-bits", "--accumulate 2 --average 0.9", "--optimizer muon --zero 2",
                          "--method swav", "--method supcon --watch-every 3 --record-step 5"],
    "train_clip": ["", "--loss siglip --watch-every 2", "--accumulate 2"],
}
# Options that exclude a graph, and the message.
excluded = {"train_clip": {"--cached": refused + "copy 2 bytes to the host"}, "train_contrastive": {
    "--method byol": refused + "free ",
    "--method moco": refused + "free ",
    "--method dino": "Dino: " + refused + "copy 8 bytes to the host; leave it out",
    "--loss lejepa": "lejepa: " + refused + "copy 4 bytes to the host; leave it out",
    "--ranks 2": "--graph: a graph of one card only, and this run has 2 ranks; leave it out, or take --ranks 1",
    "--clip 1": "--clip needs the norm of each step's gradients there",
    "--optimizer lars": "--optimizer lars needs norms there",
    "--zero 3": "--zero 3 gathers parameters anew in each",
    "--trace trace.json": "--trace takes the times of its ops there",
    "--device cpu": "--graph: it is for steps on a card, but this run is on the CPU",
}}


class Runs:
    def __init__(self, folder):
        self.folder, self.count, self.bad = folder, 0, 0

    def run(self, program, words):
        self.count += 1
        probes = ["--no-probes"] if program.name == "train_contrastive" else []
        device = [] if "--device" in words else ["--device", "cuda"]
        command = [program, *device, "--data", self.folder / "data", "--batch", batch, "--steps", steps,
                   "--width", 2, "--quiet", "--out", self.folder / f"run{self.count}", *probes, *words.split()]
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=self.folder)

    def check(self, good, what, text):
        self.bad += not good
        print(f"{what}: {text}{'' if good else '  !'}", flush=True)

    def weights(self, program, words):
        ended = self.run(program, words)
        found = re.search(r"weights ([0-9a-f]{16})", ended.stdout)
        return found[1] if found else ended.stdout + ended.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=lambda name: pathlib.Path(name).resolve())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        runs = Runs(pathlib.Path(name))
        make = pathlib.Path(__file__).resolve().with_name("small_data.py")
        data = [runs.folder / "data", "--train", str(samples), "--test", "20"]
        subprocess.run([sys.executable, make, *data], check=True)
        for program in options.programs:
            for words in repeated.get(program.name, ()):
                plain, graph = runs.weights(program, words), runs.weights(program, words + " --graph")
                runs.check(plain == graph, f"{program.name} {words}", f"weights {plain}, and in a graph {graph}")
            for words, message in excluded.get(program.name, {}).items():
                ended = runs.run(program, words + " --graph")
                named = ended.returncode == 64 and message in ended.stderr
                runs.check(named, f"{program.name} {words}", ended.stderr.strip())
    return 1 if runs.bad else 0


if __name__ == "__main__":
    sys.exit(main())
