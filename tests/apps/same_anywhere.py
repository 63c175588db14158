#!/usr/bin/env python3
"""Runs a training program on several numbers of ranks, as threads and as processes, and compares their loss curves and
the hashes of their weights; then kills it at random times, lets others go on with what is left, and compares again.

    tests/apps/same_anywhere.py PROGRAM [--threads 1 2 3 4 8] [--processes 1 2 3 4] [--mpiexec NAME] [--kills 4]
                                [--tolerance 0] -- OPTION...

With --tolerance 0, as it is meant to be, all curves and hashes are equal to the bit; otherwise losses may differ by so
much, relatively, and hashes are not compared.
"""
import argparse
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time


class Program:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def command(self, way, out, *more):
        kind, ranks = way
        launcher = [self.options.mpiexec, "-n", str(ranks)] if kind == "processes" else []
        threads = ["--ranks", str(ranks)] if kind == "threads" else []
        return [*launcher, self.options.program, *threads, "--out", str(self.folder / out), *self.options.rest, *more]

    def result(self, out, text):
        found = re.search(r"weights ([0-9a-f]{16})", text)
        if not found:
            sys.exit(f"{out}: there is no hash of weights in what it printed:\n{text}")
        lines = (self.folder / out / "metrics.jsonl").read_text().splitlines()
        return found[1], [json.loads(line)["loss"] for line in lines]

    def run(self, way, out, *more):
        done = subprocess.run(self.command(way, out, *more), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(self.command(way, out, *more))} ended with {done.returncode}:\n{done.stderr}")
        return self.result(out, done.stdout + done.stderr)

    def kill_after(self, way, out, seconds):
        """Whether there was something to kill."""
        job = subprocess.Popen(self.command(way, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
        try:
            job.wait(seconds)
            return False
        except subprocess.TimeoutExpired:
            subprocess.run(["pkill", "-KILL", "-s", str(job.pid)], check=False)
            job.send_signal(signal.SIGKILL)
            job.wait()
            return True


def difference(curve, expected):
    if len(curve) != len(expected):
        return float("inf")
    return max(abs(a - b) / max(abs(b), 1e-300) for a, b in zip(curve, expected))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2, 3, 4, 8])
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--tolerance", type=float, default=0)
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(own)
    options.rest = sys.argv[len(own) + 2:]
    ways = [("threads", n) for n in options.threads] + [("processes", n) for n in options.processes]
    draw = random.Random(options.seed)
    bad = 0

    def report(what, result, expected):
        nonlocal bad
        off, same = difference(result[1], expected[1]), result[0] == expected[0]
        good = off <= options.tolerance and (same or options.tolerance > 0)
        bad += not good
        print(f"{what:<44} weights {result[0]}  loss off by {off:.1e}{'' if good else '  !'}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        program = Program(options, pathlib.Path(folder))
        begun = time.monotonic()
        expected = program.run(ways[0], "first")
        seconds = time.monotonic() - begun
        for way in ways:
            report(f"{way[1]} {way[0]}", program.run(way, f"{way[0]}{way[1]}"), expected)
        killed = 0
        while killed < options.kills:
            before, after = draw.choice(ways), draw.choice(ways)
            out = f"kill{killed}"
            if program.kill_after(before, out, draw.uniform(0.1, 0.95) * seconds):
                result = program.run(after, out, "--resume", "auto")
                report(f"killed on {before[1]} {before[0]}, went on on {after[1]} {after[0]}", result, expected)
                killed += 1
    print("all is equal" if bad == 0 else f"{bad} are not equal (seed {options.seed})")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
