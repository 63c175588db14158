# SPDX-License-Identifier: Apache-2.0
"""Jobs under the supervisor, as supervised.py starts, kills and judges them."""
import collections
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

from job import named_files, processes_with, run

here = pathlib.Path(__file__).resolve().parent

deadline = "10"  # seconds that ranks wait


def words_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]  # gone


def parent_of(process):
    try:
        return int(re.search(r"PPid:\s+(\d+)", pathlib.Path(f"/proc/{process}/status").read_text())[1])
    except OSError:
        return 0  # gone


def kill(process, number=signal.SIGKILL):
    try:
        os.kill(process, number)
        return True
    except ProcessLookupError:
        return False  # killed with the others


def hash_in(output):
    found = re.findall(r"hash of the weights ([0-9a-f]{16})", output)
    return found[-1] if found else None


def script_of_document(weft, ranks, program):
    """The script for Slurm in docs/clusters.md, with these."""
    document = (here.parents[1] / "docs" / "clusters.md").read_text()
    script = re.search(r"```text\n(#!/bin/bash\n(?:(?!```)[\s\S])*?scontrol[\s\S]*?)```", document)[1]
    script = re.sub(r"/opt/weft/build/apps/.*(?= &\n)", lambda _: shlex.join(map(str, program)), script)
    return script.replace("-n 64", f"-n {ranks}").replace("/opt/weft/build/tools/weft/weft", str(weft))


class Job:
    """What runs under the supervisor, in one way: threads or processes."""

    def __init__(self, bench, kind, ranks, out, program=None, options=(), supervisor=(), launcher=None):
        self.bench, self.kind, self.ranks, self.out = bench, kind, ranks, bench.folder / out
        self.program = program or bench.sums
        self.launcher = launcher or ("threads" if kind == "threads" else bench.mpiexec)
        self.supervisor = ["--pause", "0.05", *supervisor]
        self.options = ["--out", self.out, "--checkpoint-every", "1", *options]

    def command(self, *more):
        return [self.bench.weft, "launch", "-n", self.ranks, "--launcher", self.launcher, *self.supervisor, "--", self.program,
                *self.options, *more]

    def run(self, *more, disturb=None, environment=None, limit=60):
        outcome = run(self.command(*more), {"WEFT_TIMEOUT": deadline, **(environment or {})}, disturb, limit)
        self.bench.named |= named_files(outcome.output)
        return outcome

    # Its processes.

    def supervisors(self, token):
        return [each for each in processes_with(token) if words_of(each)[0] == str(self.bench.weft)]

    def ranks_of(self, token):
        return [each for each in processes_with(token) if words_of(each)[0] == str(self.program)]

    def launchers(self, token):
        """The children of the supervisor. Not those of `weft record`, which it starts after a loss, nor what a launcher has forked."""
        supervisors = self.supervisors(token)
        found = self.ranks_of(token) if self.kind == "threads" else processes_with(token)
        return [each for each in found if parent_of(each) in supervisors and
                (self.kind == "threads" or "mpiexec" in words_of(each)[0] and "record" not in words_of(each))]

    def all(self, token):
        return set(processes_with(token)) - set(self.supervisors(token))

    def steps(self):
        metrics = self.out / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def after_steps(self, number, action):
        """A disturbance: `action` on the token, once so many steps are made."""
        def disturb(token):
            latest = time.monotonic() + 30
            while self.steps() < number and time.monotonic() < latest:
                time.sleep(0.005)
            action(token)
        return disturb

    def report(self):
        path = self.out.with_name(self.out.name + ".launch.txt")
        return path.read_text() if path.exists() else ""

    def attempts(self):
        return len(re.findall(r"^ +\d+ ", self.report(), re.M))


class Bench:
    def __init__(self, options, folder):
        self.folder, self.weft, self.sums, self.contrastive = folder, options.weft, options.sums, options.contrastive
        self.disturb, self.mpiexec, self.kills, self.seed = options.disturb, options.mpiexec, options.kills, options.seed
        self.kinds = ["threads"] + ["processes"] * bool(self.mpiexec)
        self.small = ["--data", folder / "data", "--no-probes", "--same-bits", "--steps", "40", "--batch", "24", "--width", "2",
                      "--dtype", "f64"]
        self.nodes = options.nodes
        self.count, self.calm, self.named = 0, {}, set()
        subprocess.run([sys.executable, here.parent / "apps" / "small_data.py", folder / "data", "--train", "96", "--test", "32"], check=True)

    def job(self, kind, ranks, **more):
        self.count += 1
        return Job(self, kind, ranks, f"run {self.count}", **more)

    def training(self, kind, ranks, **more):
        return self.job(kind, ranks, program=self.contrastive, options=self.small, **more)

    def expected(self, job):
        """The weights of the same training, undisturbed and without a supervisor, and its seconds."""
        # With --same-bits they are those of any number of ranks.
        key = (job.program, *job.options[4:], 0 if "--same-bits" in job.options else job.ranks)
        if key not in self.calm:
            out = self.folder / f"calm {len(self.calm)}"
            began = time.monotonic()
            ended = subprocess.run(list(map(str, [job.program, "--out", out, *job.options[2:], "--ranks", job.ranks])),
                                   capture_output=True, text=True)
            self.calm[key] = hash_in(ended.stdout), time.monotonic() - began
        return self.calm[key]


def complaints(job, *expected, **more):
    """What is wrong with the end of a job."""
    return [f"{job.kind}, {job.ranks} ranks: {found}" for found in all_complaints(job, *expected, **more)]


def all_complaints(job, outcome, code, says="", attempts=None, done=False):
    codes = code if isinstance(code, tuple) else (code,)
    if outcome.code in (0, None) if code is None else outcome.code not in codes:
        yield f"exit code {outcome.code}, not {'another than 0' if code is None else code}"
    if not re.search(says, outcome.output):
        yield f"does not say: {says}"
    if attempts is not None and job.attempts() != attempts:
        yield f"{job.attempts()} attempts, not {attempts}:\n{job.report()}"
    if outcome.orphans:
        yield f"left processes {outcome.orphans}"
    if done and hash_in(outcome.output) != job.bench.expected(job)[0]:
        yield f"ends in other weights: {hash_in(outcome.output)}, not {job.bench.expected(job)[0]}"


class Killer:
    """Kills parts of a job at random times, again and again, as long as there are kills left for it."""
    kinds = ["rank", "launcher", "all"]

    def __init__(self, job, draw, seconds, kills):
        self.job, self.draw, self.seconds, self.kills, self.counts = job, draw, seconds, kills, collections.Counter()
        self.disturbed = None      # when, and after how many steps, if the job has not come back yet
        self.slowest_restart = 0.  # seconds from a disturbance to the next step, if there was no other before

    def victims(self, kind, token):
        if kind == "rank":
            ranks = self.job.ranks_of(token)
            return [self.draw.choice(ranks)] if ranks else []
        return self.job.launchers(token) if kind == "launcher" else list(self.job.all(token))

    def __call__(self, token):
        latest = time.monotonic() + 60
        threading.Thread(target=self.wait_for_steps, args=[token], daemon=True).start()
        while self.kills > 0 and time.monotonic() < latest:
            time.sleep(self.draw.uniform(0, self.seconds))
            if not self.job.supervisors(token):
                return
            kind = self.draw.choice(self.kinds)
            if self.disturb(kind, token):
                self.kills -= 1
                self.counts[kind] += 1
                self.disturbed = time.monotonic(), self.job.steps()

    def wait_for_steps(self, token):
        while self.job.supervisors(token):
            time.sleep(0.05)
            disturbed = self.disturbed
            if disturbed and self.job.steps() > disturbed[1]:
                self.slowest_restart = max(self.slowest_restart, time.monotonic() - disturbed[0])
                self.disturbed = None

    def disturb(self, kind, token):
        """Whether anything was killed."""
        return any([kill(each) for each in self.victims(kind, token)])
