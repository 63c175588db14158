# SPDX-License-Identifier: Apache-2.0
"""Faults of one rank while others make calls, with the report, exit code and duration to expect. The program is
tests/mpi/transports."""
import copy
import os
import re
import signal
import time

from job import deadline, named_files, on_ranks, processes_with, run, with_environment

site = r"at (\S+/)?tests/mpi/transports\.cpp:\d+"


class Row:
    def __init__(self, name, code, says, waits=0, fault=None, environment=None, alone=False, foreign=False,
                 by_deadline=False, ways=("processes",), reports=1, disturb=None, missing_program=False, slow=False,
                 odd_environment=None, open_mpi_says=None):
        self.name, self.code, self.says, self.waits = name, code, says, waits  # code None: any but 0
        self.fault = fault or name
        self.environment = environment or {}
        self.alone = alone  # started without mpiexec
        self.foreign = foreign  # started by another MPI's mpiexec
        self.ways = ways
        self.reports = reports  # of how the job ends
        self.disturb = disturb  # called with the job's token while it runs
        self.missing_program = missing_program  # on the last rank
        self.slow = slow  # tried on one number of ranks
        self.by_deadline = by_deadline  # if ranks see only each other's messages
        self.odd_environment = odd_environment  # for the odd rank alone
        self.open_mpi_says = open_mpi_says  # if its mpiexec sees the fault itself

    def by_messages(self):
        """The row as expected on a transport that cannot see which rank waits for which."""
        row = copy.copy(self)
        if self.by_deadline:
            row.code, row.says, row.waits = 86, ["deadline: rank .* has waited", "rank {odd}, process"], deadline
        return row

    def by_open_mpi(self):
        row = copy.copy(self)
        if self.open_mpi_says:
            row.says, row.waits = self.open_mpi_says, 0
        return row


def suspend(token):
    """Suspends the whole job for longer than the deadline, like a laptop that is closed."""
    time.sleep(0.5)
    stopped = processes_with(token)
    for each in stopped:
        os.kill(each, signal.SIGSTOP)
    time.sleep(2.5 * deadline)
    for each in stopped:
        os.kill(each, signal.SIGCONT)


def mismatch(name, usual, odd, **more):
    return Row(name, 87, [usual + ".*" + site, odd + ".*" + site, "rank {odd} is in", "collective mismatch"], **more)


def differ(name, usual, odd):
    says = [f"ranks 0 and {{odd}} were started with different settings: '{name}={usual}' and '{name}={odd}'"]
    return Row(f"{name} of one rank", 78, says, fault="none", environment={name: usual}, odd_environment={name: odd})


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
    # A machine that has just started: until its clock says more than a rank may be busy, the other has slept enough.
    Row("sleep_after_boot", 86, late + ["rank {odd}, process \\d+, asleep"], fault="sleep", waits=3 * deadline, slow=True, **threads,
        environment={"WEFT_TIMEOUT": str(3 * deadline), "LD_PRELOAD": "{folder}/libdisturb.so", "DISTURB": "clock_gettime 1 boot"}),
    Row("spin", 86, late + ["rank {odd}, process \\d+, running"], **stall, **both),
    # Not a stall: a rank that is busy within bounds and says so, and a suspended job
    Row("busy", 0, [], waits=3, reports=0, **both),
    Row("busy_for_ever", 86, late + ["rank {odd}, process \\d+, asleep: writes runs/x, for 1"], waits=11 * deadline, slow=True, **both),
    Row("suspend", 0, [], waits=2.5 * deadline + 2, fault="calm", reports=0, disturb=suspend, **both),
    # F1: a crash
    Row("crash_11", None, crashed + ["SIGSEGV"], reports=0, **both),
    Row("crash_6", None, crashed + ["SIGABRT"], reports=0, **both),
    Row("crash_8", None, crashed + ["SIGFPE"], reports=0, **both),
    Row("overflow", None, crashed + ["SIGSEGV"], reports=0, **both),
    # F12: out of memory
    Row("memory", 89, ["memory: .* \\d+ bytes", "rank {odd}", "its last call was .*'before' " + site], **both),
    # A rank that cannot start
    Row("start", None, ["starting the job \\(MPI_Init\\) has not ended after 5 s"], waits=5, fault="none", reports=0,
        missing_program=True, slow=True, open_mpi_says=["could not access\\s+or execute an executable"]),
    # A rank that stops where MPI waits for it, and cannot be polled
    Row("stop_in_split", 86, ["a split \\(MPI_Comm_split\\) has not ended after 5 s"], waits=5, fault="split", reports=0,
        slow=True, environment={"WEFT_TRANSPORT": "mpi"},
        odd_environment={"LD_PRELOAD": "{folder}/libdisturb.so", "DISTURB": "MPI_Comm_split 1 stop"}),
    # What MPI complains of, as it may of a rank that is gone
    Row("error_of_mpi", 91, ["rank {odd} ends", "MPI reports an error; a rank or its node may be gone\\n  .*count", "its last call was "],
        fault="calm", slow=True, environment={"WEFT_TRANSPORT": "mpi"},
        odd_environment={"LD_PRELOAD": "{folder}/libdisturb.so", "DISTURB": "MPI_Iallgather 9 error"}),
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
    Row("exit_0 of a thread", 71, ["rank {odd} ends", "called exit", "'before' " + site], fault="exit_0", **threads),
    mismatch("skip", r"all_reduce sum f32 \(4\)", r"all_reduce sum f32 \(5\)"),
    # F5: calls that differ
    # Calls are counted from 1; built with CUDA, the ranks agree on their cards in a call before the 100 of the program.
    mismatch("kind", r"in call 10[12] of group 0 .*: all_reduce sum f32 \(4\)", r"in call 10[12] of group 0 .*: all_gather f32 \(4\)"),
    mismatch("count", r"f32 \(4\)", r"f32 \(8\)"),
    mismatch("dtype", r"f32 \(4\)", r"i64 \(4\)"),
    mismatch("operation", "all_reduce sum", "all_reduce product"),
    mismatch("root", "broadcast f32 .* root 0", "broadcast f32 .* root 1"),
    mismatch("order", "'weights'", "'bias'"),
    mismatch("order_of_long_names", "'encoder.blo..n.query.weight~", "'encoder.blo..ion.key.weight~"),
    Row("started", 87, [r"is in call \d+ .*f32 \(4\)", r"rank {odd} (has started|is in) call \d+ .*f32 \(8\)", "collective mismatch"]),
    Row("group", 87, ["collective mismatch: these ranks wait for each other", "of group 0 .*" + site, "of group 1 .*" + site],
        by_deadline=True),
    # F6: settings that differ by rank
    differ("WEFT_TRANSPORT", "shared", "mpi"),
    differ("WEFT_LINK", "50us,1Gbit", "1us,1Gbit"),
    differ("WEFT_DEBUG", "0", "1"),
    # F7: started by a launcher of another MPI
    Row("PMI_SIZE", 90, wrong + ["PMI_SIZE is 3"], fault="none", environment={"PMI_SIZE": "3"}, alone=True),
    Row("OMPI_COMM_WORLD_SIZE", 90, wrong + ["OMPI_COMM_WORLD_SIZE is 3"], fault="none",
        environment={"OMPI_COMM_WORLD_SIZE": "3"}, alone=True),
    Row("SLURM_NTASKS", 90, wrong + ["SLURM_NTASKS is 3"], fault="none", environment={"SLURM_NTASKS": "3"}, alone=True),
    Row("torchrun", 90, wrong + ["WORLD_SIZE is 3", "mpiexec.* -n 3 PROGRAM"], fault="none",
        environment={"WORLD_SIZE": "3", "RANK": "0", "MASTER_ADDR": "localhost"}, alone=True),
    Row("foreign", 90, wrong + ["_SIZE is {ranks}, but this job has 1 rank"], waits=1.5, fault="none", foreign=True),
    Row("threads", 90, ["wrong library: .* allows a program no threads"], fault="none", environment={"TEST_WITHOUT_THREADS": "1"}),
    *(Row("WEFT_TIMEOUT=" + wrong, 64, ["WEFT_TIMEOUT: '" + wrong + "' is not a number of seconds"], fault="none",
          environment={"WEFT_TIMEOUT": wrong}, **both) for wrong in ("abc", "inf", "1e16", "-1", "0")),
    Row("WEFT_CPU=v9", 64, ["WEFT_CPU=v9: there are only base"], fault="none", environment={"WEFT_CPU": "v9"}, **both),
    Row("WEFT_CPU=v9 of one rank", 64, ["rank {odd} of", "WEFT_CPU=v9: there are only base"], fault="none",
        odd_environment={"WEFT_CPU": "v9"}),
    Row("WEFT_TRANSPORT=pigeon", 64, ["WEFT_TRANSPORT=pigeon: there are self, shared"], fault="none",
        environment={"WEFT_TRANSPORT": "pigeon"}, **both),
    Row("WEFT_LINK=fast", 64, ["WEFT_LINK: 'fast' is not a latency and a bandwidth, as 20us,1Gbit"], fault="none",
        environment={"WEFT_LINK": "fast"}, **both),
    Row("WEFT_WATCH=yes", 64, ["WEFT_WATCH: 'yes' is not 0 or 1"], fault="none", environment={"WEFT_WATCH": "yes"}, **both),
    Row("WEFT_RANKS", 90, wrong + ["the number of ranks expected is 7"], fault="none", environment={"WEFT_RANKS": "7"}),
]
healthy = Row("none", 0, [])


def in_folder(bench, environment):
    return {name: value.replace("{folder}", str(bench.folder)) for name, value in environment.items()}


def command(bench, row, way, ranks, odd):
    program = [bench.program("mpi_transports"), row.fault, str(odd)]
    if way == "threads":
        return program + [str(ranks)]
    if row.alone:
        return program
    if row.missing_program:
        return on_ranks(bench.mpiexec, ranks, program, odd, ["/nowhere/program"])
    if row.odd_environment:
        return on_ranks(bench.mpiexec, ranks, program, odd, with_environment(in_folder(bench, row.odd_environment), program))
    return on_ranks(bench.foreign if row.foreign else bench.mpiexec, ranks, program)


def limit(bench, row, outcome):
    return outcome.slowdown * (row.waits + max(bench.start_up + 0.5, 5 * bench.start_up))


def outcome_in_time(bench, row, run_once, run_healthy):
    """A busy machine can slow any job down, but not every time by more than other processes used."""
    for _ in range(6):
        outcome = run_once()
        if outcome.code is None or outcome.seconds <= limit(bench, row, outcome):
            return outcome, []
        bench.start_up = run_healthy().seconds
        if outcome.seconds <= limit(bench, row, outcome):
            return outcome, []
    return outcome, [f"took {outcome.seconds:.2f} s, at most {limit(bench, row, outcome):.2f} s are allowed; a job without a "
                     f"fault takes {bench.start_up:.2f}, and others slowed this one down by {outcome.slowdown:.2f}"]


def file_complaints(outcome, row):
    """The file with all ranks' last calls must exist after a fault."""
    for path in named_files(outcome.output):
        if not path.exists():
            yield f"no file {path}"
            continue
        with path.open("rb") as file:  # the logs come first; the rest is large and sparse
            if row.fault != "unwind" and b"before" not in file.read(1 << 20):
                yield f"{path} does not hold the last calls"


def complaints(bench, row, way, ranks, odd):
    row = row.by_messages() if bench.transport == "mpi" else row
    row = row.by_open_mpi() if bench.by_open_mpi else row

    def started(of):
        environment = {**bench.environment, **in_folder(bench, of.environment)}
        return bench.note(run(command(bench, of, way, ranks, odd), environment, of.disturb))

    outcome, found = outcome_in_time(bench, row, lambda: started(row), lambda: started(healthy))
    bench.last = outcome
    if outcome.code is None:
        found.append("never ended")
    elif not bench.accepts(outcome.code, row.code, way):
        found.append(f"exit code {outcome.code}, not {'another than 0' if row.code is None else row.code}")
    for expected in row.says:
        if not re.search(expected.replace("{odd}", str(odd)).replace("{ranks}", str(ranks)), outcome.output):
            found.append(f"does not say: {expected}")
    if outcome.output.count("ends the job with exit code") != row.reports:
        found.append(f"there should be {row.reports} reports")
    if "has crashed" in "".join(row.says) and outcome.output.count("has crashed") != 1:
        found.append("there should be one report of the crash")
    if outcome.orphans:
        found.append(f"left processes {outcome.orphans}")
    return found + list(file_complaints(outcome, row))
