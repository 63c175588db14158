# SPDX-License-Identifier: Apache-2.0
"""Scarce resources: shared memory, file descriptors, address space, memory for one allocation; and many jobs that start
at the same time. In every case a job ends, says why, and returns 0 only if its results are right."""
import itertools
import multiprocessing.pool
import re
import tempfile

import rows
from job import named_files, on_ranks, run, with_environment, with_limit, with_mounts
from trainings import weights

clean = {89, 70}  # out of memory, or an exception that this causes


def training(bench, ranks, out):
    program = [bench.program("launch_program"), "--quiet", "--steps", "2", "--checkpoint-every", "1", "--out", out]
    return program + (["--ranks", str(ranks)] if ranks > 1 else [])


def ended(bench, outcome, allowed, calm):
    """Returns complaints. Exit code 0 is allowed with the right weights."""
    if outcome.code is None or outcome.seconds > 12 + bench.patience:
        yield "never ended"
    elif outcome.code == 0 and weights(outcome) != calm:
        yield f"ends with 0, and without the right weights:\n{outcome.output}"
    elif outcome.code != 0 and allowed and outcome.code not in allowed:
        yield f"ends with {outcome.code}:\n{outcome.output}"
    elif outcome.code != 0 and not outcome.output.strip():
        yield f"ends with {outcome.code}, without a word"
    if outcome.orphans:
        yield f"left processes {outcome.orphans}"


def calm_weights(bench, ranks):
    def measure():
        with tempfile.TemporaryDirectory(prefix="weft_fault_") as out:
            return weights(run(training(bench, ranks, out + "/run")))
    return bench.remember(f"weights of 2 steps on {ranks}", measure)


def told(start, calm):
    """mpiexec may end before it has passed on what a rank said that could not start, or lose its code: up to three attempts."""
    for _ in range(3):
        outcome = start()
        if weights(outcome) == calm if outcome.code == 0 else outcome.output.strip():
            break
    return outcome


def limited(bench, limit, way):
    """One of two processes, or a process with two threads, has a scarce resource."""
    with tempfile.TemporaryDirectory(prefix="weft_fault_") as out:
        program = training(bench, 1 if way == "processes" else 2, out + "/run")
        other = with_limit(limit, program)
        command = on_ranks(bench.mpiexec, 2, program, 1, other) if way == "processes" else other
        calm = calm_weights(bench, 2)
        start = lambda: bench.note(run(command))
        outcome = told(start, calm) if way == "processes" else start()
    yield from ended(bench, outcome, None, calm)


def small_shared_memory(bench, size, ranks):
    with tempfile.TemporaryDirectory(prefix="weft_fault_") as out:
        command = on_ranks(bench.mpiexec, ranks, training(bench, 1, out + "/run"))
        calm = calm_weights(bench, ranks)
        outcome = told(lambda: run(with_mounts({"/dev/shm": f"{size}m"}, command)), calm)
    yield from ended(bench, outcome, None, calm)
    if size == 4 and "/dev/shm has only" not in outcome.output:
        yield f"does not say that /dev/shm is small:\n{outcome.output}"
    if size == 64 and outcome.code != 0:
        yield f"{ranks} ranks are too many for what a container has:\n{outcome.output}"


def failing_allocation(bench, number, way):
    """The outcome of a job whose n-th allocation fails, or None if it makes fewer."""
    with tempfile.TemporaryDirectory(prefix="weft_fault_") as out:
        program = training(bench, 1 if way == "processes" else 2, out + "/run")
        other = with_environment({"LD_PRELOAD": bench.program("libdisturb.so"), "DISTURB": f"new {number} fail"}, program)
        outcome = bench.note(run(on_ranks(bench.mpiexec, 2, program, 1, other) if way == "processes" else other))
        if "disturbed" not in outcome.output:
            return None
        # An exception that leaves main before there is a session ends the process by SIGABRT; mpiexec's code differs.
        left_main = "terminate called after throwing an instance of 'std::bad_alloc'" in outcome.output
        # A library that MPI loads, such as one for AMD's cards, may do without.
        return outcome.code, list(ended(bench, outcome, None if left_main else clean, calm_weights(bench, 2)))


def failing_allocations(bench, way, first, step):
    """Fails each allocation of one rank, one after the other, until there are no more."""
    codes = {}
    for number in itertools.count(first, step):
        result = failing_allocation(bench, number, way)
        if result is None:
            break
        codes[result[0]] = codes.get(result[0], 0) + 1
        yield from (f"allocation {number}: {complaint}" for complaint in result[1])
    bench.remark(f"every {step}. of {number} allocations failed once; exit codes {codes}")
    if codes.keys() <= {0}:
        yield "no allocation failed"


def at_once(bench, count):
    """Jobs that succeed next to jobs that fail in many ways."""
    kinds = [row for row in rows.rows if row.fault in ("throw", "sleep", "crash_11", "skip", "exit_0", "memory")
             and "processes" in row.ways] + [rows.healthy]
    chosen = [kinds[i % len(kinds)] for i in range(count)]
    with multiprocessing.pool.ThreadPool(8) as pool:
        outcomes = pool.map(lambda row: run(rows.command(bench, row, "processes", 2, 1), bench.environment), chosen)
    for row, outcome in zip(chosen, outcomes):
        bench.note(outcome)
        if not bench.accepts(outcome.code, row.code, "processes"):
            yield f"{row.name} ends with {outcome.code} beside others:\n{outcome.output}"
        for expected in row.says:
            if not re.search(expected.replace("{odd}", "1"), outcome.output):
                yield f"{row.name} does not say beside others: {expected}"
        yield from (f"{path} is gone" for path in named_files(outcome.output) if not path.exists())


def stopped_in(bench, call, ranks):
    """One of two processes is stopped before its first call."""
    with tempfile.TemporaryDirectory(prefix="weft_fault_") as out:
        program = [*training(bench, 1, out + "/run"), "--timeout", "2", "--ranks", str(ranks)]
        other = with_environment({"LD_PRELOAD": bench.program("libdisturb.so"), "DISTURB": f"{call} 1 stop"}, program)
        outcome = bench.note(run(on_ranks(bench.mpiexec, 2, program, 1, other)))
    yield from ended(bench, outcome, {86}, None)
    if f"({call}) has not ended after 5 s" not in outcome.output:
        yield f"does not name {call}:\n{outcome.output}"


def checks(bench):
    yield "stopped in MPI_Comm_dup", "threads of 2 processes", True, lambda: stopped_in(bench, "MPI_Comm_dup", 2)
    quick_limits = ("-n 10", "-n 24", "-v 163840", "-v 655360")
    limits = [f"-n {number}" for number in range(4, 40, 2)] + [f"-v {mebibytes << 10}" for mebibytes in (20, 40, 60, 80, 160, 320, 640, 2560)]
    for limit, way in itertools.product(limits, ("processes", "threads")):
        yield f"ulimit {limit}", way, limit in quick_limits, lambda limit=limit, way=way: limited(bench, limit, way)
    for size, ranks in itertools.product((4, 16, 64) if bench.may_mount else (), (2, 4, 8)):
        yield (f"/dev/shm of {size} MiB", f"{ranks} processes", (size, ranks) in ((4, 2), (16, 4), (64, 8)),
               lambda size=size, ranks=ranks: small_shared_memory(bench, size, ranks))
    for way, quick, first, step in (("threads", True, 300, 400), ("processes", True, 450, 900), ("threads", False, 1, 1),
                                    ("processes", False, 1, 5)):
        yield (f"every {step}. allocation", way, quick,
               lambda way=way, first=first, step=step: failing_allocations(bench, way, first, step))
    for quick, count in (True, 14), (False, 140):
        yield f"{count} jobs at once", "processes", quick, lambda count=count: at_once(bench, count)
