#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a training program on several numbers of ranks, as threads and as processes, and compares loss curves and hashes
of weights. Then it kills runs at random steps, resumes them, and compares again. With --same-bits among the options the
bits must agree for all numbers of ranks, and otherwise for runs on the same number.

    tests/apps/same_anywhere.py PROGRAM [--threads 1 2 3 4 8] [--processes 1 2 3 4] [--in-two-processes 2]
                                [--mpiexec NAME] [--kills 4] [--tolerance 0] [--samples N] [--against-host 1e-9]
                                -- OPTION...

--in-two-processes is the number of ranks, as threads, in each of two processes.
With --tolerance 0 all curves and hashes must be bit-identical; otherwise it is the relative tolerance of the losses,
and hashes are not compared. --samples writes a small data set for it. --against-host, for runs on a card, is the
tolerance of their losses against a run on the CPU.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from processes import kill_all


class Program:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def command(self, way, out, *more):
        kind, ranks = way
        processes = {"threads": 0, "processes": ranks, "threads of two processes": 2}[kind]
        launcher = [self.options.mpiexec, "-n", str(processes)] if processes else []
        threads = [] if kind == "processes" else ["--ranks", str(ranks // max(processes, 1))]
        return [*launcher, self.options.program, *threads, "--out", str(self.folder / out), *self.options.rest, *more]

    def result(self, out, text):
        found = re.search(r"weights ([0-9a-f]{16})", text)
        if not found:
            sys.exit(f"{out}: there is no hash of weights in what it printed:\n{text}")
        return found[1], [row["loss"] for row in self.rows(out)]

    def rows(self, out):
        return [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]

    def run(self, way, out, *more):
        done = subprocess.run(self.command(way, out, *more), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(self.command(way, out, *more))} ended with {done.returncode}:\n{done.stderr}")
        return self.result(out, done.stdout + done.stderr)

    def kill_at(self, way, out, step, seconds):
        """Kills the run some seconds after a step. Returns whether it was still running."""
        job = subprocess.Popen(self.command(way, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        metrics = self.folder / out / "metrics.jsonl"
        while job.poll() is None and (not metrics.exists() or metrics.read_bytes().count(b"\n") < step):
            time.sleep(0.001)
        time.sleep(seconds)
        alive = job.poll() is None
        kill_all(self.folder / out)
        job.wait()
        return alive


def difference(curve, expected):
    if len(curve) != len(expected):
        return float("inf")
    return max(abs(a - b) / max(abs(b), 1e-300) for a, b in zip(curve, expected))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2, 3, 4, 8])
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--in-two-processes", type=int, nargs="*", default=[])
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--tolerance", type=float, default=0)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--against-host", type=float)
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(own)
    options.rest = sys.argv[len(own) + 2:]
    ways = [("threads", n) for n in options.threads] + [("processes", n) for n in options.processes]
    ways += [("threads of two processes", 2 * n) for n in options.in_two_processes]
    draw = random.Random(options.seed)
    print(f"seed {options.seed}")
    bad = 0

    def report(what, result, expected, tolerance=options.tolerance):
        nonlocal bad
        off, same = difference(result[1], expected[1]), result[0] == expected[0]
        good = off <= tolerance and (same or tolerance > 0)
        bad += not good
        print(f"{what:<46} weights {result[0]}  loss off by {off:.1e}{'' if good else '  !'}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        program = Program(options, pathlib.Path(folder))
        if options.samples:
            make = pathlib.Path(__file__).resolve().with_name("small_data.py")
            subprocess.run([sys.executable, make, f"{folder}/data", "--train", str(options.samples)], check=True)
            options.rest += ["--data", f"{folder}/data"]
        expected, rows = program.run(ways[0], "first"), program.rows("first")
        steps, seconds = len(rows), (rows[-1]["time"] - rows[0]["time"]) / len(rows)
        for way in ways:
            report(f"{way[1]} {way[0]}", program.run(way, f"{way[0]}{way[1]}".replace(" ", "_")), expected)
        if options.against_host:
            on_card, options.rest = options.rest, ["cpu" if word == "cuda" else word for word in options.rest]
            report("on the host", program.run(ways[0], "host"), expected, options.against_host)
            options.rest = on_card
        killed = 0
        while killed < options.kills:
            before, after, step, out = draw.choice(ways), draw.choice(ways), draw.randrange(steps), f"kill{killed}"
            if program.kill_at(before, out, step, draw.random() * seconds):
                result = program.run(after, out)
                report(f"killed at {step} on {before[1]} {before[0]}, then {after[1]} {after[0]}", result, expected)
                killed += 1
    print("all is equal" if bad == 0 else f"{bad} are not equal")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
