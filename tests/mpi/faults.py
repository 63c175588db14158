#!/usr/bin/env python3
"""Injects one fault into one rank of a job, and checks how the job ends: by which exit code, how soon, with which report,
and without a process left behind. Ranks are processes, and for some rows threads.

    tests/mpi/faults.py PROGRAM [--mpiexec mpiexec.mpich] [--foreign mpiexec.openmpi] [--ranks 2 3 4] [--only ROW ...]
                        [--repeat N] [--random N]

PROGRAM is tests/mpi/transports. A row passes if its exit code is right, the report says all it should, and the job took no
longer than the row's waits and what jobs without a fault take on this machine at that time: five times as long, or half a
second longer, whichever is more. The environment is passed on: WEFT_TRANSPORT, and what Open MPI needs for more ranks than
cores (see tests/meson.build). The fault is on the last rank, or with --random on any, in that many jobs of any row and size.
"""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import uuid

deadline = 1.0
site = r"at (\S+/)?tests/mpi/transports\.cpp:\d+"


class Row:
    def __init__(self, name, code, says, waits=0, fault=None, environment=None, alone=False, foreign=False,
                 by_deadline=False, ways=("processes",), reports=1, disturb=None, missing_program=False, slow=False):
        self.name, self.code, self.says, self.waits = name, code, says, waits  # code None: any but 0
        if by_deadline and os.environ.get("WEFT_TRANSPORT") == "mpi":  # which does not see who waits for whom
            self.code, self.says, self.waits = 86, ["deadline: rank .* has waited", "rank {odd}, process"], deadline
        self.fault = fault or name
        self.environment = environment or {}
        self.alone = alone  # started without mpiexec
        self.foreign = foreign  # started by the mpiexec of another MPI
        self.ways = ways
        self.reports = reports  # of how the job ends
        self.disturb = disturb  # called with the job's token while it runs
        self.missing_program = missing_program  # on the last rank
        self.slow = slow  # for one number of ranks


def suspend(token):
    """Stops all of a job, as a laptop does that is closed, for longer than the deadline."""
    time.sleep(0.5)
    stopped = processes_with(token)
    for each in stopped:
        os.kill(each, signal.SIGSTOP)
    time.sleep(2.5 * deadline)
    for each in stopped:
        os.kill(each, signal.SIGCONT)


def mismatch(name, usual, odd, **more):
    return Row(name, 87, [usual + ".*" + site, odd + ".*" + site, "rank {odd} is in", "collective mismatch"], **more)


stall = {"waits": deadline}
both = {"ways": ("processes", "threads")}
threads = {"ways": ("threads",)}
crashed = ["rank {odd} has crashed: signal", "its last call was call .*'before' " + site]
late = ["deadline: rank .* has waited", "finished .*'before' " + site]
wrong = ["wrong launcher", "mpiexec"]
rows = [
    # F2: a rank that does not move
    Row("stop", 86, ["deadline: rank .* has waited", "rank {odd}, process \\d+, STOPPED", "finished .*'before' " + site], **stall),
    Row("sleep", 86, late + ["rank {odd}, process \\d+, asleep"], **stall, **both),
    Row("spin", 86, late + ["rank {odd}, process \\d+, running"], **stall, **both),
    # What is not a stall: a rank that says what it does, within bounds, and a job that does not run
    Row("busy", 0, [], waits=3, reports=0, **both),
    Row("busy_for_ever", 86, late + ["rank {odd}, process \\d+, asleep: writes runs/x, for 1"], waits=11 * deadline, slow=True, **both),
    Row("suspend", 0, [], waits=2.5 * deadline + 2, fault="calm", reports=0, disturb=suspend, **both),
    # F1: a crash
    Row("crash_11", None, crashed + ["SIGSEGV"], reports=0, **both),
    Row("crash_6", None, crashed + ["SIGABRT"], reports=0, **both),
    Row("crash_8", None, crashed + ["SIGFPE"], reports=0, **both),
    Row("overflow", None, crashed + ["SIGSEGV"], reports=0, **both),
    # F12: no memory
    Row("memory", 89, ["memory: .* \\d+ bytes"], **both),
    # A rank that cannot start
    Row("start", None, ["starting the job \\(MPI_Init\\) has not ended after 10 s"], waits=10, fault="none", reports=0,
        missing_program=True, slow=True),
    # F3: an exception
    Row("throw", 70, ["rank {odd} of", "the disk is on fire", "its last call was .*'before' " + site]),
    Row("throw_everywhere", 70, ["the disk is on fire"]),
    Row("throw_in_noexcept", 70, ["rank {odd} of", "the disk is on fire", "'before' " + site]),
    Row("throw_in_thread", 70, ["rank {odd} of", "the disk is on fire", "'before' " + site]),
    Row("unwind", 72, ["rank {odd} of", "an exception is leaving the session"]),
    # F4: leaving early, or one call too few
    Row("return", 87, [r"all_reduce sum f32 \(4\) " + site, "rank {odd} is in .*FINALIZE"]),
    Row("return_from_group", 87, [r"all_reduce sum f32 \(4\) " + site, "rank {odd} waits for .*FINALIZE"],
        by_deadline=True),
    Row("exit_0", 71, ["rank {odd} of", "called exit", "'before' " + site]),
    Row("exit_1", 71, ["rank {odd} of", "called exit", "'before' " + site]),
    Row("exit_0 of a thread", 71, ["rank {odd} of", "called exit", "'before' " + site], fault="exit_0", **threads),
    mismatch("skip", r"all_reduce sum f32 \(4\)", r"all_reduce sum f32 \(5\)"),
    # F5: calls that differ
    mismatch("kind", r"all_reduce sum f32 \(4\)", r"all_gather f32 \(4\)"),
    mismatch("count", r"f32 \(4\)", r"f32 \(8\)"),
    mismatch("dtype", r"f32 \(4\)", r"i64 \(4\)"),
    mismatch("operation", "all_reduce sum", "all_reduce product"),
    mismatch("root", "broadcast f32 .* root 0", "broadcast f32 .* root 1"),
    mismatch("order", "'weights'", "'bias'"),
    mismatch("order_of_long_names", "'encoder.blo..n.query.weight~", "'encoder.blo..ion.key.weight~"),
    Row("group", 87, ["collective mismatch: these ranks wait for each other", "of group 0 .*" + site, "of group 1 .*" + site],
        by_deadline=True),
    # F7: started by something that does not know this MPI
    Row("PMI_SIZE", 90, wrong + ["PMI_SIZE is 3"], fault="none", environment={"PMI_SIZE": "3"}, alone=True),
    Row("OMPI_COMM_WORLD_SIZE", 90, wrong + ["OMPI_COMM_WORLD_SIZE is 3"], fault="none",
        environment={"OMPI_COMM_WORLD_SIZE": "3"}, alone=True),
    Row("SLURM_NTASKS", 90, wrong + ["SLURM_NTASKS is 3"], fault="none", environment={"SLURM_NTASKS": "3"}, alone=True),
    Row("foreign", 90, wrong + ["_SIZE is {ranks}, but this job has 1 rank"], waits=1.5, fault="none", foreign=True),
    Row("threads", 90, ["wrong library: .* allows a program no threads"], fault="none", environment={"TEST_WITHOUT_THREADS": "1"}),
    *(Row("WEFT_TIMEOUT=" + wrong, 64, ["WEFT_TIMEOUT: '" + wrong + "' is not a number of seconds"], fault="none",
          environment={"WEFT_TIMEOUT": wrong}, **both) for wrong in ("abc", "inf", "1e16", "-1", "0")),
    Row("WEFT_RANKS", 90, wrong + ["the number of ranks expected is 7"], fault="none", environment={"WEFT_RANKS": "7"}),
]


def processes_with(token):
    """The ids of processes that have the token in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and token in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass  # gone, or not ours
    return found


def run(options, row, way, ranks, odd):
    """Returns exit code (None if it never ended), seconds and output of one job, and what it has left behind."""
    token = f"WEFT_TEST={uuid.uuid4()}"
    environment = dict({**os.environ, "WEFT_TIMEOUT": str(deadline), **row.environment}, MPIEXEC_TIMEOUT="30")
    environment[token.split("=")[0]] = token.split("=")[1]
    command = [options.program, row.fault, str(odd)]
    if way == "threads":
        command += [str(ranks)]
    elif row.missing_program:
        command = [options.mpiexec, "-n", str(ranks - 1)] + command + [":", "-n", "1", "/nowhere/program"]
    elif not row.alone:
        command = [options.foreign if row.foreign else options.mpiexec, "-n", str(ranks)] + command
    begin = time.monotonic()
    job = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if row.disturb:
        threading.Thread(target=row.disturb, args=[token.encode()]).start()
    try:
        output, code = job.communicate(timeout=40)[0], job.returncode
    except subprocess.TimeoutExpired:
        for each in processes_with(token.encode()):
            os.kill(each, signal.SIGKILL)
        output, code = job.communicate()[0], None
    seconds = time.monotonic() - begin
    for _ in range(200):  # mpiexec is gone before the ranks are
        if not processes_with(token.encode()):
            break
        time.sleep(0.01)
    return code, seconds, output.decode(errors="replace"), processes_with(token.encode())


def board_complaints(output, row):
    """The file with everybody's last calls has to be there after a fault. Removes it."""
    for path in re.findall(r"the last calls of all ranks are in (\S+)", output):
        board = pathlib.Path(path)
        if not board.exists():
            yield f"no file {path}"
            continue
        with board.open("rb") as file:  # the logs come first; the rest is large, and mostly holes
            if row.fault != "unwind" and b"before" not in file.read(1 << 20):
                yield f"{path} does not hold the last calls"
        board.unlink()


healthy = Row("none", 0, [])


def limit(options, row):
    return row.waits + max(options.start_up + 0.5, 5 * options.start_up)


def complaints(options, row, way, ranks, odd):
    code, seconds, output, orphans = run(options, row, way, ranks, odd)
    for _ in range(5):  # a busy machine can make any job slow, but not each time
        if code is None or seconds <= limit(options, row):
            break
        options.start_up = run(options, healthy, way, ranks, odd)[1]
        if seconds <= limit(options, row):
            break
        list(board_complaints(output, row))
        code, seconds, output, orphans = run(options, row, way, ranks, odd)
    else:
        yield f"took {seconds:.2f} s, a job without a fault {options.start_up:.2f}"
    if code is None:
        yield "never ended"
    elif code == 0 if row.code is None else code != row.code:
        yield f"exit code {code}, not {'another than 0' if row.code is None else row.code}"
    for expected in row.says:
        if not re.search(expected.replace("{odd}", str(odd)).replace("{ranks}", str(ranks)), output):
            yield f"does not say: {expected}"
    if output.count("ends the job with exit code") != row.reports:
        yield f"there should be {row.reports} reports"
    if "has crashed" in "".join(row.says) and output.count("has crashed") != 1:
        yield "there should be one report of the crash"
    if orphans:
        yield f"left processes {orphans}"
    yield from board_complaints(output, row)
    options.seconds = seconds
    options.output = output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mpiexec", default="mpiexec.mpich")
    parser.add_argument("--foreign", help="the mpiexec of another MPI, if there is one")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--random", type=int, default=0)
    options = parser.parse_args()
    chosen = [(row, way, ranks, ranks - 1) for ranks in options.ranks for row in rows * options.repeat for way in row.ways
              if not ((row.alone or row.slow) and ranks != options.ranks[0]) and not (row.foreign and not options.foreign)
              and (not options.only or row.name in options.only)]
    if options.random:
        chosen = [(row, way, ranks, random.randrange(ranks)) for row, way, ranks, _ in random.choices(chosen, k=options.random)]
    failed, options.start_up = 0, 0  # starting is measured when a job seems slow
    for row, way, ranks, odd in chosen:
        found = list(complaints(options, row, way, ranks, odd))
        failed += bool(found)
        print(f"{'FAILED' if found else 'ok':6}  {'1' if row.alone else f'{odd} of {ranks}':6} {way:9}  {row.name:20}  exit {row.code}  "
              f"after {options.seconds:.2f} s, limit {limit(options, row):.2f} s", flush=True)
        if found:
            print("        " + "\n        ".join(found) + "\n" + options.output)
    print(f"{len(chosen)} jobs, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
