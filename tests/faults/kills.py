#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeatedly kills training jobs at random times and resumes them, as threads and as processes, with --same-bits on
other numbers of ranks and without it on the same number.

    tests/faults/kills.py PROGRAM... [--mpiexec NAME] [--kills 1000] [--seed N]

SIGKILL goes to one rank, to mpiexec, or to all processes of a job. The job must then end by itself, without success.
The next one must resume from a checkpoint no earlier than the last that was acknowledged (sessions.json is written
after it), and every loss and the final weights must be bit-identical to those of an undisturbed run. In the end nothing
may be left in /dev/shm, which is separate for these jobs where that is allowed. Each program has a small data set and a
few dozen steps, and saves after each.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from job import own_shared_memory, processes_with, run

steps = 40
# Where a training can resume, by its options.
any_number = [("threads", 2), ("threads", 1), ("threads", 3), ("processes", 2), ("processes", 3), ("processes", 4)]
as_many = [("threads", 3), ("processes", 3)]
modes = {"--same-bits": any_number, "--zero 0": as_many, "--zero 3": as_many}
small = ["--steps", str(steps), "--checkpoint-every", "1", "--batch", "24", "--width", "2", "--dtype", "f64"]


class Training:
    """A run in one folder, continued by several jobs."""

    def __init__(self, program, mode, mpiexec, data, out):
        self.program, self.mpiexec, self.out = program, mpiexec, out
        self.ways = [way for way in modes[mode] if mpiexec or way[0] == "threads"]
        of_program = {"train_contrastive": ["--no-probes"], "train_vqgan_weight": ["--alone", "2"]}.get(program.name, [])
        self.options = ["--data", data, "--out", out, *mode.split(), *small, *of_program]

    def run(self, way, disturb=None):
        kind, ranks = way
        launcher = [self.mpiexec, "-n", ranks] if kind == "processes" else []
        threads = ["--ranks", ranks] if kind == "threads" else []
        ended = ["--resume", "auto"] if (self.out / "report.html").exists() else []  # or it would begin anew
        return run([*launcher, self.program, *threads, *self.options, *ended], {"WEFT_TIMEOUT": "10"}, disturb)

    def losses(self):
        """Losses by step. A line that is cut off by the kill is ignored."""
        metrics = self.out / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return {row["step"]: row["loss"] for row in rows}

    def acknowledged(self):
        """The last step whose checkpoint is certainly saved."""
        sessions = self.out / "sessions.json"
        last = re.findall(r'"last_step":\s*(\d+)', sessions.read_text()) if sessions.exists() else []
        return int(last[-1]) if last else 0


class Killer:
    """Kills a part of a job some time after its start."""

    def __init__(self, program, draw, longest):
        self.program, self.seconds, self.kind = program, draw.uniform(0, longest), draw.choice(["rank", "launcher", "all"])
        self.draw, self.killed = draw, 0

    def victims(self, processes):
        ranks = [process for process in processes if self.command(process).endswith(self.program.name)]
        launcher = [process for process in processes if "mpiexec" in self.command(process)]
        if self.kind == "all":
            return processes
        return launcher if self.kind == "launcher" and launcher else [self.draw.choice(ranks)] if ranks else []

    @staticmethod
    def command(process):
        try:
            return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].decode()
        except OSError:
            return ""  # gone

    def __call__(self, token):
        time.sleep(self.seconds)
        for process in self.victims(processes_with(token)):
            try:
                os.kill(process, signal.SIGKILL)
                self.killed += 1
            except ProcessLookupError:
                pass  # killed with the others


class Tally:
    def __init__(self):
        self.counts, self.failures = collections.Counter(), collections.Counter()

    def wrong(self, what, said):
        self.failures[what] += 1
        print(f"FAILED: {what}\n{said}", flush=True)

    def check(self, training, outcome, killed, expected, weights, acknowledged):
        """Checks one job. Returns whether the training is done."""
        said, done = outcome.output, re.search(r"weights ([0-9a-f]{16})", outcome.output)
        if outcome.code is None or outcome.orphans:
            self.wrong("jobs that did not end", said)
        elif outcome.code != 0 and not killed:
            self.wrong("jobs that nobody killed and that failed", said)
        elif outcome.code == 0 and not done:
            self.wrong("jobs that ended with 0 before they were done", said)
        begun = re.findall(r"resumed from .*step-(\d+)", said)
        self.counts["resumes"] += bool(begun)
        if (int(begun[0]) if begun else 0) < acknowledged and (begun or re.search(r"step \d+/", said)):
            self.wrong("acknowledged checkpoints lost", said)
        if any(expected[step] != loss for step, loss in training.losses().items()):
            self.wrong("wrong losses", said)
        if done and done[1] != weights:
            self.wrong("wrong hashes", said)
        return done is not None


def live_through(training, calm, tally, draw, kills):
    """Kills and resumes one training until it is done."""
    (expected, weights, seconds), before, acknowledged, done = calm, None, 0, False
    while not done:
        before = draw.choice([way for way in training.ways if way != before] or training.ways)
        killer = Killer(training.program, draw, 0.8 * seconds)
        enough = tally.counts["kills"] >= kills
        outcome = training.run(before, None if enough else killer)
        done = tally.check(training, outcome, killer.killed, expected, weights, acknowledged)
        acknowledged = max(acknowledged, training.acknowledged())
        if killer.killed:
            tally.counts["kills"] += 1
            tally.counts["kills of " + killer.kind] += 1
            if tally.counts["kills"] % 100 == 0:
                print(f"{tally.counts['kills']} kills", flush=True)
    tally.counts["trainings"] += 1


def live_calmly(training):
    """The losses, weights and duration of an undisturbed training."""
    outcome = training.run(training.ways[0])
    found = re.search(r"weights ([0-9a-f]{16})", outcome.output) or sys.exit(f"does not run:\n{outcome.output}")
    return training.losses(), found[1], outcome.seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=lambda name: pathlib.Path(name).resolve(), nargs="+")
    parser.add_argument("--mpiexec")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    alone = own_shared_memory()
    print(f"seed {options.seed}", flush=True)
    draw, tally, calm, began = random.Random(options.seed), Tally(), {}, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft_kills_") as name:
        folder = pathlib.Path(name)
        make = pathlib.Path(__file__).resolve().parent.parent / "apps/small_data.py"
        subprocess.run([sys.executable, make, folder / "data", "--train", "96", "--test", "32"], check=True)

        def training(program, mode, out):
            return Training(program, mode, options.mpiexec, folder / "data", folder / out)

        number = 0
        while tally.counts["kills"] < options.kills:
            program, mode = options.programs[number % len(options.programs)], draw.choice(list(modes))
            if (program, mode) not in calm:
                calm[program, mode] = live_calmly(training(program, mode, f"calm {program.name} {mode}"))
            live_through(training(program, mode, f"run {number}"), calm[program, mode], tally, draw, options.kills)
            number += 1
        if options.mpiexec and alone:
            training(program, mode, "last").run(("processes", 3))  # removes the files of the killed ones
            for file in pathlib.Path("/dev/shm").glob("weft-*"):
                tally.wrong("files left in /dev/shm", file)
    print(", ".join(f"{count} {what}" for what, count in sorted((tally.counts + tally.failures).items())))
    print(f"{tally.counts['kills']} kills in {time.monotonic() - began:.0f} s: {tally.failures['wrong hashes']} wrong hashes, "
          f"{tally.failures['acknowledged checkpoints lost']} acknowledged checkpoints lost, "
          f"{sum(tally.failures.values())} failures in all")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
