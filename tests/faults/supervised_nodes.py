# SPDX-License-Identifier: Apache-2.0
"""Jobs under the supervisor on nodes inside this machine (tests/cluster), as root."""
import collections
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import time

from supervised_jobs import Job, Killer, complaints, here, kill, parent_of, words_of


class OnNodes(Job):
    """A job on nodes inside this machine, two ranks on each."""

    def __init__(self, bench, number):
        launcher = bench.folder / f"mpiexec on {number} nodes".replace(" ", "_")
        launcher.write_text(f"""#!/bin/bash
unset MPIEXEC_TIMEOUT
ranks=$2 nodes={number} placement= && shift 2
for ((node = 0; node < nodes; ++node)); do placement+=,$(((ranks + nodes - 1 - node) / nodes)); done
exec {here.parent}/cluster/cluster run "${{placement#,}}" "$@"
""")
        launcher.chmod(0o755)
        bench.count += 1
        supervisor = ["--restarts", "100", "--same-step", "9", "--stall", "0.2"]
        super().__init__(bench, "processes", 2 * number, f"run {bench.count}", bench.contrastive, bench.small, supervisor, launcher)
        self.nodes = number

    def ranks_of(self, token):
        return [each for each in processes_on_nodes() if words_of(each)[0] == str(self.program)]

    def all(self, token):
        return {*super().all(token), *processes_on_nodes()}


def cluster(*words):
    return subprocess.run([here.parent / "cluster" / "cluster", *map(str, words)], capture_output=True, text=True)


def processes_on_nodes():
    return list(map(int, cluster("processes").stdout.split()))


def files_left():
    """Files of jobs on the nodes that no report has named, as their marks say. The link may be cut that a report takes."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"{os.environ['WEFT_CLUSTER']}-cluster"
    return [each for each in folder.glob("node*/shm/weft-*") if not any(each.open("rb").read(32)[24:])]


def rank_of(process):
    """The number of a rank that mpiexec has started. It is a child of the process that watches it."""
    found = re.search(rb"\0PMI_RANK=(\d+)", pathlib.Path(f"/proc/{process}/environ").read_bytes())
    return int(found[1]) if words_of(parent_of(process)) == words_of(process) else None


def tells_who_died(bench, number):
    """What is wrong with what the supervisor says of a rank that is killed on the last node."""
    job = OnNodes(bench, number)
    victim = 2 * number - 1

    def kill_last(token):
        kill(next(each for each in job.ranks_of(token) if rank_of(each) == victim))
    outcome = job.run(disturb=job.after_steps(3, kill_last), environment={"WEFT_TIMEOUT": "9"}, limit=300)
    says = rf"rank {victim} on node{number}, process \d+, ended by signal 9 \(Killed\)\n  "
    yield from complaints(job, outcome, 0, says, 2, done=True)
    heads = re.findall(r"^rank (\d) on node(\d), process \d+", outcome.output, re.M)
    if heads != [(str(rank), str(rank // 2 + 1)) for rank in range(2 * number)]:
        yield f"the table has {heads}:\n{outcome.output}"
    if not re.search(r"^ranks? [\d, and]+ waits? in call \d+ of group ", outcome.output, re.M):
        yield f"nobody waited:\n{outcome.output}"


class KillerOfNodes(Killer):
    """Kills nodes and cuts links, too. A link is whole again after some seconds."""
    kinds = ["rank", "launcher", "all", "node", "cut"]

    def disturb(self, kind, token):
        if kind not in ("node", "cut"):
            return super().disturb(kind, token)
        node, running = self.draw.randrange(1, self.job.nodes + 1), bool(self.job.ranks_of(token))
        cluster("kill" if kind == "node" else "cut", node)
        if kind == "cut":
            time.sleep(self.draw.uniform(0.5, 6))
            cluster("heal", node)
        return running


def nodes(bench):
    """Kills of processes and nodes, and cuts of links, from the start of processes to their end."""
    draw = random.Random(bench.seed)
    for number in bench.nodes:
        counts, slowest, restart = collections.Counter(), 0, 0
        cluster("up", number)
        try:
            calm = OnNodes(bench, number)
            seconds = min(calm.run(limit=120).seconds, calm.run("--fresh", limit=120).seconds)
            print(f"        {number} nodes: {seconds:.1f} s undisturbed", flush=True)
            yield from tells_who_died(bench, number)
            while sum(counts[kind] for kind in KillerOfNodes.kinds) < bench.kills:
                job = OnNodes(bench, number)
                killer = KillerOfNodes(job, draw, 0.9 * seconds, draw.choice([1, 2, 3, 4, 5]))
                outcome = job.run(disturb=killer, environment={"WEFT_TIMEOUT": "3"}, limit=900)
                counts += killer.counts
                counts["trainings"] += 1
                counts["attempts"] += job.attempts()
                slowest, seconds = max(slowest, outcome.seconds), min(seconds, outcome.seconds)
                restart = max(restart, killer.slowest_restart)
                found = list(complaints(job, outcome, 0, done=True))
                time.sleep(0.5)
                found += [f"left on nodes: {words_of(each)}" for each in processes_on_nodes()]
                found += [f"left on nodes: {each}" for each in files_left()]
                if found:
                    yield from [*found, job.report(), outcome.output]
                print(f"        {outcome.seconds:.1f} s, {job.attempts()} attempts, {dict(killer.counts)}", flush=True)
                shutil.rmtree(job.out, ignore_errors=True)
        finally:
            cluster("down")
        print(f"        {number} nodes: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) +
              f"; the slowest took {slowest:.1f} s, a restart {restart:.1f} s", flush=True)
