#!/usr/bin/env python3
"""Kills training jobs at random times and lets others go on with what is left, on other numbers of ranks, as threads and
as processes, again and again.

    tests/apps/kills.py PROGRAM... [--mpiexec NAME] [--kills 1000] [--seed N]

SIGKILL goes to one rank, to mpiexec, or to all processes of a job. Then the job has to end by itself, without success.
The next one has to go on from a checkpoint no earlier than the last that was acknowledged (sessions.json is written
after that), and every loss and the last weights have to be those of a run that nobody disturbed, to the bit. In the end
/dev/shm has to be as it was before. Each program has a small data set and a few dozen steps, and saves after each.
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

from processes import kill_all, processes_of

steps, patience = 40, 30  # seconds
ways = [("threads", 1), ("threads", 2), ("threads", 3), ("processes", 2), ("processes", 3), ("processes", 4)]
small = ["--steps", str(steps), "--checkpoint-every", "1", "--batch", "24", "--width", "2", "--dtype", "f64",
         "--timeout", "10", "--resume", "auto"]


def shared_memory():
    return set(pathlib.Path("/dev/shm").glob("weft-*"))


class Training:
    """A run in one folder, of which several jobs do a part each."""

    def __init__(self, program, mpiexec, data, out):
        self.program, self.mpiexec, self.out = program, mpiexec, out
        self.options = ["--data", str(data), "--out", str(out), *small]
        self.options += ["--no-probes"] * (program.name == "train_contrastive") + ["--alone", "2"] * (program.name == "train_vqgan_weight")

    def start(self, way):
        kind, ranks = way
        launcher = [self.mpiexec, "-n", str(ranks)] if kind == "processes" else []
        threads = ["--ranks", str(ranks)] if kind == "threads" else []
        return subprocess.Popen([*launcher, self.program, *threads, *self.options], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def losses(self):
        """By step. A line that is being written when the job is killed is none."""
        metrics = self.out / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return {row["step"]: row["loss"] for row in rows}

    def acknowledged(self):
        """The last step of which a checkpoint was saved for certain."""
        sessions = self.out / "sessions.json"
        last = re.findall(r'"last_step":\s*(\d+)', sessions.read_text()) if sessions.exists() else []
        return int(last[-1]) if last else 0


def victims(job, out, draw):
    """Whom to kill, and what they are called."""
    processes = sorted(processes_of(out))
    launcher = [process for process in processes if process == job.pid]
    ranks = [process for process in processes if process != job.pid] or launcher
    kind = draw.choice(["rank", "launcher", "all"])
    chosen = {"rank": [draw.choice(ranks)] if ranks else [], "launcher": launcher, "all": processes}[kind]
    return chosen, kind


def kill(process):
    """Whether it was still there."""
    try:
        os.kill(process, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def ends(job, out):
    """Its output, when all of its processes are gone; nothing if they stay."""
    limit = time.monotonic() + patience
    try:
        said = job.communicate(timeout=patience)[0]
    except subprocess.TimeoutExpired:
        return None
    while processes_of(out):
        if time.monotonic() > limit:
            return None
        time.sleep(0.005)
    return said


class Tally:
    def __init__(self):
        self.counts = collections.Counter()

    def wrong(self, what, said=""):
        self.counts[what] += 1
        print(f"FAILED: {what}\n{said}", flush=True)

    def check_life(self, training, expected, acknowledged, said):
        """What one job says of where it began, and has measured."""
        begun = re.findall(r"going on from .*step-(\d+)", said)
        if begun and int(begun[0]) < acknowledged or (not begun and acknowledged and re.search(r"step \d+/", said)):
            self.wrong("acknowledged checkpoints lost", said)
        if any(expected[step] != loss for step, loss in training.losses().items()):
            self.wrong("wrong losses", f"{training.program.name} in {training.out}")
        self.counts["resumes"] += bool(begun)


def live_through(training, expected, weights, longest, tally, draw, kills):
    """One training, killed until it ends."""
    before, acknowledged = None, 0
    while True:
        way = draw.choice([each for each in ways if each != before and (training.mpiexec or each[0] == "threads")])
        before = way
        job = training.start(way)
        last = tally.counts["kills"] >= kills
        time.sleep(0 if last else draw.uniform(0, longest))
        chosen, kind = ([], "") if last else victims(job, training.out, draw)
        killed = job.poll() is None and sum(map(kill, chosen)) > 0
        said = ends(job, training.out)
        if said is None:
            tally.wrong("jobs that did not end", f"{training.program.name} on {way}, {kind} killed")
            kill_all(training.out)
            continue
        tally.check_life(training, expected, acknowledged, said)
        acknowledged = max(acknowledged, training.acknowledged())
        done = re.search(r"weights ([0-9a-f]{16})", said)
        if killed:
            tally.counts["kills"] += 1
            tally.counts["kills of " + kind] += 1
            if tally.counts["kills"] % 100 == 0:
                print(f"{tally.counts['kills']} kills", flush=True)
            if job.returncode == 0 and not done:
                tally.wrong("jobs that ended with 0", said)
        elif job.returncode != 0:
            tally.wrong("jobs that nobody killed and that failed", said)
        if done:
            tally.counts["trainings"] += 1
            if done[1] != weights:
                tally.wrong("wrong hashes", said)
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=lambda name: pathlib.Path(name).resolve(), nargs="+")
    parser.add_argument("--mpiexec")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    draw, tally, began = random.Random(options.seed), Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft_kills_") as name:
        folder = pathlib.Path(name)
        make = pathlib.Path(__file__).resolve().with_name("small_data.py")
        subprocess.run([sys.executable, make, folder / "data", "--train", "96", "--test", "32"], check=True)
        calm, memory_before = {}, shared_memory()
        for number in range(sys.maxsize):
            program = options.programs[number % len(options.programs)]
            if program not in calm:
                training = Training(program, options.mpiexec, folder / "data", folder / f"calm {program.name}")
                begin = time.monotonic()
                said = training.start(("threads", 2)).communicate()[0]
                found = re.search(r"weights ([0-9a-f]{16})", said) or sys.exit(f"{program} does not run:\n{said}")
                calm[program] = training.losses(), found[1], 0.8 * (time.monotonic() - begin)
            training = Training(program, options.mpiexec, folder / "data", folder / f"run {number}")
            live_through(training, *calm[program], tally, draw, options.kills)
            if tally.counts["kills"] >= options.kills:
                break
        # The next job removes what the killed ones have left.
        if options.mpiexec:
            last = Training(options.programs[0], options.mpiexec, folder / "data", folder / "last")
            last.start(("processes", 2)).communicate()
        left = shared_memory() - memory_before
        if left:
            tally.wrong("files left in /dev/shm", "\n".join(map(str, left)))
    failed = sum(count for what, count in tally.counts.items() if what in (
        "acknowledged checkpoints lost", "wrong losses", "wrong hashes", "jobs that did not end", "jobs that ended with 0",
        "jobs that nobody killed and that failed", "files left in /dev/shm"))
    print(", ".join(f"{count} {what}" for what, count in sorted(tally.counts.items())))
    print(f"{tally.counts['kills']} kills in {time.monotonic() - began:.0f} s: {tally.counts['wrong hashes']} wrong hashes, "
          f"{tally.counts['acknowledged checkpoints lost']} acknowledged checkpoints lost, {failed} failures in all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
