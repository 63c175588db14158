#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that ranks send little more in a step of train_contrastive than the gradients of its parameters, the features
of the loss, and their gradients.

    tests/apps/traffic.py PROGRAM [--mpiexec NAME]
"""
import argparse
import math
import pathlib
import re
import subprocess
import sys
import tempfile

samples, features, f32 = 96, 64, 4  # per batch, per view, in bytes
allowance = 1.05
units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def expected_bytes(ranks, parameters):
    """Bytes that all ranks contribute. To the sum of gradients each rank contributes all of them (all_reduce); of both
    views' features those of its own samples (all_gather), and in backward a gradient for every rank's
    (reduce_scatter)."""
    views = 2 * samples * features
    return f32 * (ranks * parameters + views + ranks * views)


def run(command, *more):
    ended = subprocess.run([*command, *more], capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {ended.returncode}:\n{ended.stderr}")
    return ended.stdout


def complaints(command, ranks, out):
    printed = run(command, "--dry-run")
    parameters = sum(math.prod(map(int, re.findall(r"\d+", shape)))
                     for shape in re.findall(r"^\S+  f32 \(([\d, ]*)\)$", printed, re.M))
    number, unit = re.search(r"one step makes .* calls, ([\d.]+) (\w+)", printed).groups()
    ratio = float(number) * units[unit] / expected_bytes(ranks, parameters)
    print(f"{ranks} ranks: {number} {unit} in a step, {ratio:.3f} of what gradients and features take")
    if parameters == 0 or not 1 / allowance <= ratio <= allowance:
        yield f"{ranks} ranks bring {ratio:.3f} of what gradients and features take:\n{printed}"
    run(command)
    report = (out / "report.html").read_text()
    for verb in "all_reduce", "all_gather_v", "reduce_scatter_v":
        if not re.search(rf"^{verb}: \d+ calls", printed, re.M) or f"<td>{verb}<" not in report:
            yield f"{ranks} ranks: there is no {verb} in the dry run, or none in the report:\n{printed}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mpiexec")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make = pathlib.Path(__file__).resolve().with_name("small_data.py")
        subprocess.run([sys.executable, make, folder / "data", "--train", str(samples), "--test", "32"], check=True)
        found = []
        for ranks in (2, 3):
            for launcher, threads in [([], ["--ranks", str(ranks)])] + [([options.mpiexec, "-n", str(ranks)], [])] * bool(options.mpiexec):
                out = folder / f"{ranks} {bool(launcher)}"
                command = [*launcher, options.program, *threads, "--no-probes", "--steps", "2", "--batch", str(samples),
                           "--width", "4", "--data", folder / "data", "--out", out]
                found += complaints(command, ranks, out)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
