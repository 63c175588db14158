#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A short job, again and again: each time one rank is stopped (SIGSTOP) at another of its calls of MPI, or the link of
its node is cut there, until each call has had its turn. Every process of the job must be gone within the deadline and
two seconds. mpiexec may wait longer for a node that it cannot reach.

    tests/faults/every_call.py FOLDER [--mpiexec NAME] [--every N] [--nodes]

The programs in FOLDER are launch_program and libdisturb.so (disturb.cpp). --every N tries every N-th case only. With
--nodes the jobs are on nodes inside this machine (tests/cluster), as root.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from job import Load, max_slowdown, on_ranks, own_shared_memory, processes_with, with_environment
from supervised_jobs import words_of

here = pathlib.Path(__file__).resolve().parent
deadline = 5  # seconds: starting and ending a job may take no less. Time that a process does not get does not count
at_once = 8  # jobs; they wait most of the time

Case = collections.namedtuple("Case", "job rank number fault")
Outcome = collections.namedtuple("Outcome", "output code seconds left slowdown")


class Job:
    """Two processes on one machine."""

    every = 1

    def __init__(self, name, ranks=2, threads=1, transport=""):
        self.name, self.ranks, self.threads, self.transport = name, ranks, threads, transport
        self.environment = {}

    def start(self, bench, rank, plan, out, token, more):
        variables = {"LD_PRELOAD": bench.library, "DISTURB": plan, "DISTURB_RANK": rank}
        program = with_environment(variables, [bench.program, "--quiet", "--steps", 1, "--ranks", self.threads, "--out", out])
        name, value = token.split("=")
        environment = {**os.environ, "WEFT_TIMEOUT": str(deadline), "WEFT_TRANSPORT": self.transport, name: value, **self.environment, **more}
        return subprocess.Popen(list(map(str, self.launched(bench, program))), env=environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def launched(self, bench, program):
        return on_ranks(bench.mpiexec, self.ranks, program)

    def run(self, bench, case):
        return bench.run(case)


class JobOnNodes(Job):
    """Three processes on two nodes, of a cluster that no other job uses meanwhile."""

    def __init__(self, clusters, measures_link):
        super().__init__("nodes that measure their link" if measures_link else "nodes", 3)
        self.clusters = clusters
        if measures_link:
            self.every = 10  # it sends hundreds of messages that are alike
        else:
            self.environment = {"WEFT_LINK": "20us,1Gbit"}

    def launched(self, bench, program):
        return [here.parent / "cluster" / "cluster", "run", "2,1", *program]

    def run(self, bench, case):
        name = self.clusters.get()
        try:
            return bench.run(case, {"WEFT_CLUSTER": name})
        finally:
            for node in (1, 2):
                cluster(name, "heal", node)
            self.clusters.put(name)


def cluster(name, *words):
    return subprocess.run([here.parent / "cluster" / "cluster", *map(str, words)], env={**os.environ, "WEFT_CLUSTER": name},
                          capture_output=True, text=True)


@contextlib.contextmanager
def clusters_of_two_nodes(number):
    """Their names."""
    names = [f"weft{os.getpid()}x{each}" for each in range(number)]
    free = queue.Queue()
    try:
        for name in names:
            cluster(name, "up", 2).check_returncode()
            free.put(name)
        yield free
    finally:
        for name in names:
            cluster(name, "down")


class Bench:
    def __init__(self, options, scratch):
        self.program, self.library = options.folder / "launch_program", options.folder / "libdisturb.so"
        self.mpiexec, self.scratch = options.mpiexec, scratch

    def run(self, case, more=None):
        """What the job prints, its exit code, and the seconds from the disturbance until all its ranks are gone."""
        token, out = f"WEFT_TEST={uuid.uuid4()}", self.scratch / str(uuid.uuid4())
        launcher = case.job.start(self, case.rank, f"MPI {case.number} {case.fault}", out, token, more or {})
        printed, disturbed, latest, load = [], [], time.monotonic() + 60, Load()
        reader = threading.Thread(target=self.read, args=[launcher.stdout, printed, disturbed])
        reader.start()
        while (self.ranks(token) or launcher.poll() is None and not (case.fault == "cut" and disturbed)) and time.monotonic() < latest:
            time.sleep(0.05)
            if disturbed:
                latest = min(latest, disturbed[0] + (deadline + 2) * max_slowdown)
        ended, left, slowdown = time.monotonic(), self.ranks(token), load.slowdown(token.encode())
        for each in processes_with(token.encode()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        reader.join()
        return Outcome("".join(printed), launcher.wait(), ended - disturbed[0] if disturbed else 0, left, slowdown)

    @staticmethod
    def read(output, printed, disturbed):
        for line in output:
            printed.append(line)
            if line.endswith("disturbed\n"):
                disturbed.append(time.monotonic())

    def ranks(self, token):
        return [each for each in processes_with(token.encode()) if words_of(each)[0] == str(self.program)]

    def calls(self, job, rank):
        return int(re.search(r"^(\d+) calls$", job.run(self, Case(job, rank, 0, "count")).output, re.M)[1])


def complaints(bench, case):
    outcome = case.job.run(bench, case)
    # What a node says just before its link is cut may be lost.
    disturbed = "disturbed" in outcome.output or (case.fault == "cut" and outcome.code != 0)
    if outcome.left:
        yield f"{len(outcome.left)} processes are left after {outcome.seconds:.1f} s"
    elif outcome.seconds > (deadline + 2) * outcome.slowdown + 0.5:
        yield f"its processes are gone after {outcome.seconds:.1f} s, {outcome.slowdown:.1f} times slower than on a quiet machine"
    elif disturbed == (outcome.code == 0):  # it may make a call less than when they were counted
        yield f"ends with {outcome.code}"
    else:
        return
    yield outcome.output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--mpiexec", default="mpiexec.mpich")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--nodes", action="store_true")
    options = parser.parse_args()
    if not options.nodes:
        own_shared_memory()
    failed, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft_every_call_") as scratch, contextlib.ExitStack() as stack:
        bench = Bench(options, pathlib.Path(scratch))
        if options.nodes:
            clusters = stack.enter_context(clusters_of_two_nodes(at_once))
            jobs, faults = [JobOnNodes(clusters, False), JobOnNodes(clusters, True)], ["stop", "cut"]
        else:
            jobs, faults = [Job("processes"), Job("processes by messages", transport="mpi"), Job("threads of processes", threads=2)], ["stop"]
        cases = [Case(job, rank, number, fault) for job in jobs for rank in range(job.ranks) for fault in faults
                 for number in range(1, bench.calls(job, rank) + 1, job.every)][::options.every]
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            suspects = [case for case, found in zip(cases, pool.map(lambda case: list(complaints(bench, case)), cases)) if found]
        for case in suspects:  # each alone
            if found := list(complaints(bench, case)):
                failed += 1
                print(f"{case.job.name}, {case.fault} of rank {case.rank} at call {case.number} of MPI: " + "\n".join(found), flush=True)
    print(f"{len(cases)} calls in {time.monotonic() - began:.0f} s, {len(suspects)} repeated, {failed} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
