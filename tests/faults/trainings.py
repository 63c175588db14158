# SPDX-License-Identifier: Apache-2.0
"""Faults of a training: death in each of its phases, and failing disks. The program is tests/launch_program;
disturb.cpp makes its calls fail. After each fault the run resumes, and ends with the weights of an undisturbed one."""
import dataclasses
import itertools
import os
import pathlib
import re
import signal
import tempfile
import time

from job import on_ranks, processes_with, run, with_environment, with_mounts

steps, every, ranks = 20, 5, 3
saves = steps // every


@dataclasses.dataclass
class Case:
    name: str
    code: int | None  # None: any but 0
    says: str = ""
    disturb: str = ""  # see disturb.cpp
    odd: int = ranks - 1  # the disturbed rank, if ranks are processes
    words: tuple = ()  # more options
    ways: tuple = ("processes", "threads")
    waits: float = 0  # seconds
    quick: bool = True


def kill(phase, disturb="", **more):
    return Case(f"killed {phase}", None, disturb=disturb and disturb + " kill", **more)


def disk(call, number, error, text, quick=True):
    """Files are written by rank 0."""
    return Case(f"{error} at {call} {number}", 74, rf"/\S+: .*: {text}", f"{call} {number} {error}", odd=0, quick=quick)


def at(step, fault):
    return ("--fault", fault, "--at", str(step))


full, broken = "No space left on device", "Input/output error"
# Each of the first calls that write checkpoints and other files of a run.
calls = [(call, number) for call in ("pwrite", "write", "fsync", "rename") for number in range(1, 25)]
some = {("pwrite", 2), ("pwrite", 9), ("write", 4), ("fsync", 1), ("fsync", 8), ("rename", 4)}
cases = [
    # F1
    kill("before MPI_Init", "main 1"),
    kill("instead of MPI_Init", "MPI_Init 1", ways=("processes",)),
    kill("before a step", words=at(7, "kill")),
    kill("in a collective", words=at(7, "kill_in_collective")),
    kill("in a hook of backward", words=at(7, "kill_in_hook")),
    *(kill(f"instead of {call} {number}", f"{call} {number}", odd=0, quick=(call, number) in some) for call, number in calls),
    kill("instead of MPI_Finalize", "MPI_Finalize 1", ways=("processes",)),
    Case("leaves with 0 before MPI_Init", None, "starting the job .* has not ended after 5 s", "main 1 exit",
         ways=("processes",), waits=5, quick=False),
    Case("sleeps before MPI_Init", None, "starting the job .* has not ended after 5 s", "MPI_Init 1 30000ms",
         ways=("processes",), waits=5, quick=False),
    Case("sleeps before MPI_Finalize", None, "ending the job .* has not ended after 5 s", "MPI_Finalize 1 30000ms",
         ways=("processes",), waits=5, quick=False),
    Case("sleeps in MPI_Abort", None, "a hook has had enough", "MPI_Abort 1 30000ms", words=at(7, "one_in_hook"),
         ways=("processes",)),
    # F3
    Case("throws in a hook of backward", 70, "a hook has had enough", words=at(7, "one_in_hook")),
    # F8
    *(disk(call, number, error, text, (call, number) in some and error == "ENOSPC")
      for (call, number), (error, text) in itertools.product(calls, (("ENOSPC", full), ("EIO", broken)))),
    Case("short writes", 0, disturb="pwrite 1 short", odd=0),
    Case("short appends", 0, disturb="write 1 short", odd=0),
    Case("a disk slower than the deadline", 0, disturb="fsync 17 600ms", odd=0, waits=10, words=("--timeout", "0.5")),
]


def command(bench, case, way, out, words=(), disturbed=False):
    program = [bench.program("launch_program"), "--quiet", "--steps", steps, "--checkpoint-every", every, "--out", out,
               *words]
    program = [str(word) for word in program] + (["--ranks", str(ranks)] if way == "threads" else [])
    other = with_environment({"LD_PRELOAD": bench.program("libdisturb.so"), "DISTURB": case.disturb}, program)
    other = other if disturbed and case.disturb else program
    return other if way == "threads" else on_ranks(bench.mpiexec, ranks, program, case.odd, other)


def weights(outcome):
    found = re.search(r"weights ([0-9a-f]{16})", outcome.output)
    return found[1] if outcome.code == 0 and found else None


def complaints(bench, case, way):
    with tempfile.TemporaryDirectory(prefix="weft_fault_") as out:
        calm = bench.remember("weights of a training", lambda: weights(run(command(bench, case, way, out + "/calm"))))
        outcome = bench.note(run(command(bench, case, way, out + "/run", case.words, disturbed=True), limit=60))
        fired = not case.disturb or "disturbed" in outcome.output
        if not fired and weights(outcome) == calm and not case.quick:
            return  # there are fewer calls
        if not fired:
            yield "nothing was disturbed"
        if outcome.code is None or outcome.seconds > case.waits + bench.patience:
            yield f"took {outcome.seconds:.1f} s" if outcome.code is not None else "never ended"
        if not bench.accepts(outcome.code, case.code, way):
            yield f"exit code {outcome.code}"
        if not re.search(case.says, outcome.output):
            yield f"does not say: {case.says}"
        if outcome.orphans:
            yield f"left processes {outcome.orphans}"
        if case.code == 0 and weights(outcome) != calm:
            yield "ends in other weights"
        again = run(command(bench, case, way, out + "/run"))
        if calm is None or weights(again) != calm:
            yield f"goes on to other weights:\n{again.output}"


def full_disk(bench, way, kibibytes):
    """A real file system that is full, and later has room again."""
    with tempfile.TemporaryDirectory(prefix="weft_fault_") as out:
        case = cases[0]
        training = command(bench, case, way, out + "/run")
        outcome = bench.note(run(with_mounts({out: f"{kibibytes}k"}, training, script=f"""{{
            "$@"; echo "ends with $?"; mount -o remount,size=4m '{out}'; "$@"; echo "goes on with $?"; }}""")))
        calm = bench.remember("weights of a training", lambda: weights(run(command(bench, case, way, out + "/calm"))))
    if "ends with 74" not in outcome.output or full not in outcome.output:
        yield "a full disk is not said"
    if "goes on with 0" not in outcome.output or f"weights {calm}" not in outcome.output:
        yield "does not go on when there is room"


def slow_disk(bench, way):
    """Steps go on while a checkpoint is written, and end in the same weights."""
    with tempfile.TemporaryDirectory(prefix="weft_fault_") as out:
        case = Case("", 0, disturb="fsync 1 250ms", odd=0)
        rows, first = pathlib.Path(out) / "run/metrics.jsonl", pathlib.Path(out) / f"run/checkpoints/step-{every:06}.safetensors"
        seen = []

        def disturb(_):
            while not first.exists():
                seen.append(rows.read_text().count("\n") if rows.exists() else 0)
                time.sleep(0.01)

        outcome = bench.note(run(command(bench, case, way, out + "/run", disturbed=True), disturb=disturb, limit=60))
        calm = bench.remember("weights of a training", lambda: weights(run(command(bench, case, way, out + "/calm"))))
    if weights(outcome) != calm:
        yield f"ends with {outcome.code}, in other weights"
    if max(seen) < every + 2:
        yield f"only {max(seen)} steps are done before the checkpoint of step {every} is there"


def disk_without_locks(bench, way):
    """Then the lock file tells a second run that the first one lives, and a third one that it does not."""
    with tempfile.TemporaryDirectory(prefix="weft_fault_") as out:
        case = Case("", None, disturb="flock 1 ENOLCK", odd=0)
        again = command(bench, case, way, out + "/run", ("--pause", "150"), disturbed=True)
        seconds = []

        def disturb(token):
            while not (pathlib.Path(out) / "run/metrics.jsonl").exists():
                time.sleep(0.01)
            seconds.append(run(again))
            for each in processes_with(token):
                os.kill(each, signal.SIGKILL)

        first = bench.note(run(again, disturb=disturb))
        third = bench.note(run(again))
        calm = bench.remember("weights of a training", lambda: weights(run(command(bench, case, way, out + "/calm"))))
    if first.code == 0:
        yield "the first run has ended too early"
    if seconds[0].code != 64 or not re.search(r"another run has it, process \d+ on .* \(this disk has no locks", seconds[0].output):
        yield f"a second run ends with {seconds[0].code}:\n{seconds[0].output}"
    if weights(third) != calm:
        yield "a third run does not take the place of the first"


def checks(bench):
    for case, way in ((case, way) for case in cases for way in case.ways):
        yield f"{case.name}", way, case.quick, lambda case=case, way=way: complaints(bench, case, way)
    for way in ("processes", "threads"):
        yield "a slow disk", way, way == "threads", lambda way=way: slow_disk(bench, way)
        yield "a disk without locks", way, True, lambda way=way: disk_without_locks(bench, way)
    for kibibytes, way in itertools.product(range(4, 40, 4) if bench.may_mount else (), ("processes", "threads")):
        yield f"a disk of {kibibytes} KiB", way, kibibytes == 24, lambda way=way, size=kibibytes: full_disk(bench, way, size)
