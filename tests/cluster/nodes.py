#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs on several nodes (the script cluster, beside this file), by the mpiexec of the MPI they were built with: the
same weights wherever ranks are, no more bytes than sums and features take, and an end in time when a link is cut or a
node is gone. The exit status is 77, "skipped", where there can be no such nodes.

    tests/cluster/nodes.py TRAIN_CONTRASTIVE [OTHER PROGRAM...] --collectives PROGRAM --training PROGRAM
        --disturb LIBRARY [--only WORD...] [--everywhere] [--faults N] [--ends N]
"""
import argparse
import contextlib
import itertools
import math
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "apps"))
import launchers
from processes import kill_all, processes_of

environment = {**os.environ, "WEFT_CLUSTER": f"weft{os.getpid()}", "MPIEXEC_TIMEOUT": "300"}
samples, steps = 96, 6
small = ["--dtype", "f64", "--batch", "50", "--width", "2"]


def cluster(*words, **more):
    return subprocess.run([here / "cluster", *map(str, words)], env=environment, capture_output=True, text=True, **more)


@contextlib.contextmanager
def nodes(number, rate="1gbit"):
    try:
        cluster("up", number, rate, check=True)
        yield
    finally:
        cluster("down")


def processes_on_nodes():
    """Those of ranks, and those by which mpiexec starts them."""
    return map(int, cluster("processes").stdout.split())


def left_on_nodes():
    """Processes and files of jobs that are over. mpiexec may end a moment before those by which it starts ranks."""
    latest = time.monotonic() + 2
    while (processes := [*processes_on_nodes()]) and time.monotonic() < latest:
        time.sleep(0.1)
    return processes + cluster("files").stdout.split()


def on_nodes(ranks, command):
    return [here / "cluster", "run", ",".join(map(str, ranks)), *command]


class Bench:
    def __init__(self, folder, options):
        self.folder, self.runs = folder, 0
        self.programs, self.everywhere = options.programs, options.everywhere
        self.faults, self.ends = options.faults, options.ends
        self.collectives, self.training, self.disturb = options.collectives, options.training, options.disturb
        make = here.parent / "apps" / "small_data.py"
        subprocess.run([sys.executable, make, folder / "data", "--train", str(samples), "--test", "32"], check=True)

    def command(self, program, *options):
        self.runs += 1
        out = self.folder / str(self.runs)
        no_probes = ["--no-probes"] if program == self.programs[0] else []
        return [program, *no_probes, "--data", self.folder / "data", "--out", out, *options], out

    def weights(self, program, options, ranks=None, through=(), says="", **variables):
        """Of a run on nodes, started through another command if one is given, or on eight threads. If that command is to
        say something, it must."""
        limit, threads = 120, () if ranks else ("--ranks", "8")
        command, _ = self.command(program, *small, "--steps", str(steps), *options, *threads)
        try:
            ended = subprocess.run(on_nodes(ranks, [*through, *command]) if ranks else command, timeout=limit,
                                   env={**environment, **variables}, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            return f"no end after {limit} s"
        found = re.search(r"weights ([0-9a-f]{16})", ended.stdout)
        return found[1] if found and ended.returncode == 0 and says in ended.stderr else f"exit code {ended.returncode}:\n{ended.stderr}"


def same_weights(bench):
    """Eight ranks end in the same weights, on any number of nodes, as processes and as threads of processes."""
    stages = [(), ("--zero", "1"), ("--zero", "2"), ("--zero", "3"), ("--same-bits",)]
    runs = [(program, options) for program in bench.programs for options in stages
            if bench.everywhere or program == bench.programs[0] or not options]
    expected = {run: bench.weights(*run) for run in runs}
    for processes, threads in (([3, 3, 2], 1), ([2, 2, 2, 2], 1), ([4, 4], 1), ([8], 1), ([1, 1], 4), ([1, 1, 1, 1], 2)):
        more = ("--ranks", str(threads)) if threads > 1 else ()
        with nodes(len(processes)):
            for program, options in runs if bench.everywhere or processes == [3, 3, 2] else runs[:1]:
                found = bench.weights(program, (*options, *more), processes)
                run = f"{pathlib.Path(program).name} {' '.join(options)}"
                where = f"{run} on nodes with {processes} processes, {threads} rank(s) in each"
                print(f"{where}: {found}", flush=True)
                if found != expected[program, options]:
                    yield f"{where}: {found}, on threads of one process {expected[program, options]}"


def passes(program, placements):
    """What is wrong with a program that checks itself, on nodes with so many ranks each."""
    for ranks in placements:
        with nodes(len(ranks)):
            ended = subprocess.run(on_nodes(ranks, [program]), env=environment, capture_output=True, text=True, timeout=300)
            print(f"{pathlib.Path(program).name} on {ranks}: exit code {ended.returncode}", flush=True)
            if ended.returncode != 0:
                yield f"{program} on {ranks}:\n{ended.stdout}{ended.stderr}"


def collectives(bench):
    """Every collective's case."""
    yield from passes(bench.collectives, ([1, 1, 1, 1], [2, 1], [2, 2], [3, 3, 2]))


def random_steps(bench):
    """Sums of gradients, some of which have been started and wait for their end while others begin."""
    yield from passes(bench.training, ([2, 2], [2, 1]))


def traffic(bench):
    """Each of N nodes receives what a sum of all gradients takes, 2 (N-1)/N of them, and the same of the features: those
    of other nodes, and from each other node the gradients of its own. How many ranks a node has changes nothing, nor does
    the stage of ZeRO."""
    f32, features, width = 4, 64, 8
    options = ["--dtype", "f32", "--width", str(width), "--batch", str(samples)]
    printed = subprocess.run(bench.command(bench.programs[0], *options, "--dry-run")[0], capture_output=True, text=True).stdout
    parameters = sum(math.prod(map(int, re.findall(r"\d+", shape)))
                     for shape in re.findall(r"^\S+  f32 \(([\d, ]*)\)$", printed, re.M))
    placements = [([1] * number, ("0", "1", "2")) for number in (2, 4)]
    placements += [([2, 2], ("0", "1", "2")), ([4, 4], ("0",)), ([2, 2, 2, 2], ("0", "2"))]
    given_link = environment | {"WEFT_LINK": "20us,1Gbit"}  # a measurement of it takes other bytes in each run
    for ranks, stages in placements:
        number = len(ranks)
        least = 2 * (number - 1) / number * f32 * (parameters + 2 * samples * features)
        with nodes(number):
            for stage in stages:
                received = []
                for count in (10, 60):
                    before = list(map(int, cluster("bytes").stdout.split()))
                    command, _ = bench.command(bench.programs[0], *options, "--zero", stage, "--steps", str(count))
                    subprocess.run(on_nodes(ranks, command), env=given_link, capture_output=True, check=True)
                    received.append([now - then for now, then in zip(map(int, cluster("bytes").stdout.split()), before)])
                ratio = max(late - early for early, late in zip(*received)) / 50 / least
                found = f"--zero {stage} on {ranks}: a node receives {ratio:.3f} of what gradients and features take"
                print(found, flush=True)
                if not 0.9 < ratio < 1.15:  # headers of packets, and of calls, take the rest
                    yield found


def runs(process, program):
    try:
        return os.path.samefile(f"/proc/{process}/exe", program)
    except OSError:
        return False  # it has ended meanwhile


def fault_on(processes, threads, bench, fault, target, after_step, seconds):
    """What is wrong with the end of a job with so many processes on each node, and so many ranks in each process, to
    which this happens so many seconds after its start, or after its first step: nothing, if all processes end within the
    deadline and two seconds, with a code that is not 0."""
    deadline, slack = 4, 3  # on a busy machine
    with nodes(len(processes)):
        command, out = bench.command(bench.programs[0], *small, "--epochs", "4000", "--timeout", str(deadline),
                                     *(("--ranks", str(threads)) if threads > 1 else ()))
        job = subprocess.Popen(on_nodes(processes, command), env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        steps_made = out / "metrics.jsonl"
        while after_step and job.poll() is None and not (steps_made.exists() and steps_made.stat().st_size):
            time.sleep(0.05)
        time.sleep(seconds)
        ranks = []
        while not ranks and job.poll() is None:
            time.sleep(0.01)
            ranks = [process for process in processes_of(out) if runs(process, bench.programs[0])]
        if fault in ("cut", "kill"):
            cluster(fault, target, check=True)
        elif ranks:
            os.kill(ranks[target % len(ranks)], signal.Signals[fault])
        begin = time.monotonic()
        while (left := {*processes_of(out), *processes_on_nodes()}) and time.monotonic() - begin < deadline + 2 + slack:
            time.sleep(0.05)
        seconds_to_end = time.monotonic() - begin
        kill_all(out)
        output = job.communicate()[0]
    moment = f"{seconds:.2f} s after the {'first step' if after_step else 'start'}"
    what = f"nodes with {processes} processes, {threads} rank(s) in each: {fault} {target}, {moment}"
    print(f"{what}: exit code {job.returncode} after {seconds_to_end:.1f} s, {len(left)} processes left", flush=True)
    if left or job.returncode == 0 or not ranks:
        yield f"{what}: exit code {job.returncode}, {len(left)} processes left after {seconds_to_end:.1f} s:\n{output}"


def losses_of_nodes(bench):
    """A link that is cut, and a node that is gone."""
    for fault, node in (("cut", 2), ("cut", 4), ("kill", 1), ("kill", 3)):
        yield from fault_on([1, 1, 1, 1], 1, bench, fault, node, True, 0)


def random_faults(bench):
    """Any of these, and ranks that crash, are killed or stop, at any time. Links are cut after the first step only: before
    it, mpiexec itself may wait for them."""
    draw = random.Random(7)
    for _ in range(bench.faults):
        processes, threads = draw.choice((([1, 1], 1), ([1] * 4, 1), ([2, 2], 1), ([2] * 4, 1), ([1, 1], 2), ([1] * 4, 2)))
        after_step = draw.random() < 0.75
        fault = draw.choice(("cut", "cut") * after_step + ("kill", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGSTOP"))
        yield from fault_on(processes, threads, bench, fault, draw.randint(1, len(processes)), after_step, 2 * draw.random())


def refusal_on_nodes(bench, launcher, places, library):
    """What is wrong with the end of processes that this launcher has started, which cannot find each other."""
    command, out = bench.command(bench.programs[0], *small)
    tasks = launchers.tasks_on(places)
    jobs = []
    for task in tasks:
        given = [f"{name}={value}" for name, value in launcher(task).items()]
        on_node = shlex.join(map(str, ["env", *given, *command]))
        jobs.append(subprocess.Popen([here / "cluster", "on", str(task.node + 1), on_node], env=environment,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    ended = [subprocess.CompletedProcess(job.args, job.wait(timeout=60), *job.communicate()) for job in jobs]
    left = left_on_nodes()
    return launchers.refusal_complaint(ended, library, len(tasks)) or (f"left on nodes: {left}" if left else None) or (
        "a run was begun" if out.exists() else None)


def starts(bench):
    """A launcher that does not suit the library is refused on all nodes. Variables of Slurm beside those of the
    library's launcher, as srun sets them if it speaks the library's protocol, change nothing."""
    places, program = [3, 3, 2], bench.programs[0]
    alone, _ = bench.command(program, *small, "--ranks", "1", "--dry-run")
    library = re.search(r"MPICH|Open MPI", subprocess.run(alone, capture_output=True, text=True).stdout)[0]
    with nodes(len(places)):
        for launcher in launchers.unsuitable[library]:
            complaint = refusal_on_nodes(bench, launcher, places, library)
            print(f"{launcher.__name__} on {places}: {complaint or 'refused'}", flush=True)
            if complaint:
                yield f"{launcher.__name__} on {places}: {complaint}"
        expected, found = bench.weights(program, ()), bench.weights(program, (), places, launchers.suitable_srun)
        print(f"a suitable srun on {places}: {found}", flush=True)
        if found != expected:
            yield f"a suitable srun on {places}: {found}, on threads of one process {expected}"


def ends(bench):
    """MPI_Finalize over TCP may wait for ever, if ranks do not come to it as mpi.cpp says. So in half of the jobs one
    comes late, and in half the ranks of a node use TCP among themselves. A job that is over leaves nothing on its nodes."""
    only_tcp = {"UCX_TLS": "tcp,self", "OMPI_MCA_btl": "tcp,self"}
    late = ["sh", "-c", '[ "${PMI_RANK-$OMPI_COMM_WORLD_RANK}" != 1 ] || '
            'export LD_PRELOAD="$0" DISTURB="MPI_Finalize 1 400ms"; exec "$@"', bench.disturb]
    ways = itertools.cycle(itertools.product(([1, 1, 1, 1], [2, 2, 2, 2], [4, 4], [3, 3, 2]), ({}, only_tcp),
                                             (([], ""), (late, "disturbed"))))
    expected, seconds = {}, []
    with nodes(4, "none"):
        for ranks, variables, (through, says) in itertools.islice(ways, bench.ends):
            begin = time.monotonic()
            found = bench.weights(bench.programs[0], (), ranks, through, says, **variables)
            seconds.append(time.monotonic() - begin)
            usual = expected.setdefault(sum(ranks), found)
            left = left_on_nodes()
            if left or found != usual or not re.fullmatch("[0-9a-f]{16}", found):
                yield (f"a run that is over, on {ranks} with {variables}{', a late rank' if through else ''}: {found}, "
                       f"others {usual}; left on nodes: {left}")
                return
        print(f"{len(seconds)} runs in {sum(seconds):.1f} s, the longest {max(seconds):.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--collectives", required=True, help="tests/mpi_collectives")
    parser.add_argument("--training", required=True, help="tests/mpi_training")
    parser.add_argument("--disturb", required=True, help="the library that makes a call of a rank slow")
    parser.add_argument("--everywhere", action="store_true", help="all programs and stages in all places")
    parser.add_argument("--faults", type=int, default=4, help="how many, at random")
    parser.add_argument("--ends", type=int, default=16, help="how many jobs that end without a fault")
    parser.add_argument("--only", nargs="+", default=[])
    options = parser.parse_args()
    try:
        with nodes(1):
            cluster("run", "1", options.programs[0], "--help", check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"There can be no nodes in this machine: {getattr(error, 'stderr', error)}")
        return 77
    checks = [starts, same_weights, collectives, random_steps, traffic, losses_of_nodes, random_faults, ends]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder), options)
        for check in checks:
            if not options.only or any(word in check.__name__ for word in options.only):
                found += check(bench)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
