#!/usr/bin/env python3
"""Injects one fault into one rank of an MPI job, and checks how the job ends: by which exit code, how soon, with which
report, and without a process left behind.

    tests/mpi/faults.py PROGRAM [--mpiexec mpiexec.mpich] [--foreign mpiexec.openmpi] [--ranks 2 3 4] [--only ROW ...]
                        [--repeat N] [--random N]

PROGRAM is tests/mpi/transports. A row passes if its exit code is right, the report says all it should, and the job took no
longer than its limit beyond what a job without a fault takes. The environment is passed on: WEFT_TRANSPORT, and what Open MPI
needs for more ranks than cores (see tests/meson.build). The fault is on the last rank, or with --random on any, in that many
jobs of any row and size.
"""
import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import time
import uuid

deadline = 1.0
site = r"at (\S+/)?tests/mpi/transports\.cpp:\d+"


class Row:
    def __init__(self, name, code, says, limit=0.5, fault=None, environment=None, alone=False, foreign=False,
                 by_deadline=False):
        self.name, self.code, self.says, self.limit = name, code, says, limit
        if by_deadline and os.environ.get("WEFT_TRANSPORT") == "mpi":  # which does not see who waits for whom
            self.code, self.says, self.limit = 86, ["deadline: rank .* has waited", "rank {odd}, process"], deadline + 0.5
        self.fault = fault or name
        self.environment = environment or {}
        self.alone = alone  # started without mpiexec
        self.foreign = foreign  # started by the mpiexec of another MPI


def mismatch(name, usual, odd, **more):
    return Row(name, 87, [usual + ".*" + site, odd + ".*" + site, "rank {odd} is in", "collective mismatch"], **more)


stall = {"limit": deadline + 0.5}
wrong = ["wrong launcher", "mpiexec"]
rows = [
    # F2: a rank that does not move
    Row("stop", 86, ["deadline: rank .* has waited", "rank {odd}, process \\d+, STOPPED", "finished .*'before' " + site], **stall),
    Row("sleep", 86, ["deadline: rank .* has waited", "rank {odd}, process \\d+, asleep", "finished .*'before' " + site], **stall),
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
    Row("foreign", 90, wrong + ["_SIZE is {ranks}, but this job has 1 rank"], limit=2, fault="none", foreign=True),
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


def run(options, row, ranks, odd):
    """Returns exit code, seconds and output of one job, and what it has left behind."""
    token = f"WEFT_TEST={uuid.uuid4()}"
    environment = dict(os.environ, WEFT_TIMEOUT=str(deadline), MPIEXEC_TIMEOUT="10", **row.environment)
    environment[token.split("=")[0]] = token.split("=")[1]
    command = [options.program, row.fault, str(odd)]
    if not row.alone:
        command = [options.foreign if row.foreign else options.mpiexec, "-n", str(ranks)] + command
    begin = time.monotonic()
    job = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         timeout=20)
    seconds = time.monotonic() - begin
    output = job.stdout.decode(errors="replace")
    for _ in range(200):  # mpiexec is gone before the ranks are
        if not processes_with(token.encode()):
            break
        time.sleep(0.01)
    return job.returncode, seconds, output, processes_with(token.encode())


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


def complaints(options, row, ranks, odd):
    code, seconds, output, orphans = run(options, row, ranks, odd)
    for _ in range(5):  # a busy machine can make any job slow, but not each time
        options.start_up = run(options, healthy, ranks, odd)[1] if seconds > options.start_up + row.limit else options.start_up
        if seconds <= options.start_up + row.limit:
            break
        list(board_complaints(output, row))
        code, seconds, output, orphans = run(options, row, ranks, odd)
    else:
        yield f"took {seconds:.2f} s, {options.start_up:.2f} of it for starting"
    if code != row.code:
        yield f"exit code {code}, not {row.code}"
    for expected in row.says:
        if not re.search(expected.replace("{odd}", str(odd)).replace("{ranks}", str(ranks)), output):
            yield f"does not say: {expected}"
    if output.count("ends the job with exit code") != 1:
        yield "there should be one report"
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
    chosen = [(row, ranks, ranks - 1) for ranks in options.ranks for row in rows * options.repeat
              if not (row.alone and ranks != options.ranks[0]) and not (row.foreign and not options.foreign)
              and (not options.only or row.name in options.only)]
    if options.random:
        chosen = [(row, ranks, random.randrange(ranks)) for row, ranks, _ in random.choices(chosen, k=options.random)]
    failed, options.start_up = 0, 0  # starting is measured when a job seems slow
    for row, ranks, odd in chosen:
        found = list(complaints(options, row, ranks, odd))
        failed += bool(found)
        print(f"{'FAILED' if found else 'ok':6}  {'1' if row.alone else f'{odd} of {ranks}':6}  {row.name:20}  exit {row.code}  "
              f"after {options.seconds:.2f} s, limit {row.limit} + {options.start_up:.2f} s", flush=True)
        if found:
            print("        " + "\n        ".join(found) + "\n" + options.output)
    print(f"{len(chosen)} jobs, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
