#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Injects one fault into each job, and checks its exit code, its duration and its report, and that no process or file
is left behind. README.md says which fault is where.

    tests/faults/faults.py FOLDER [--all] [--mpiexec mpiexec.mpich] [--foreign mpiexec.openmpi] [--ranks 2 3 4]
                           [--only NAME ...] [--repeat N] [--random N]

FOLDER has the programs: build/tests. Faults of one rank among others are the rows of rows.py. A row passes if its exit
code is right, the report is complete, and the job takes no longer than the row's waits plus the time of a job without a
fault on this machine at that moment: five times that, or half a second more, whichever is longer. The fault is on the
last rank; --random N runs N jobs of random rows and sizes with the fault on a random rank. Faults of trainings and of
the machine are in trainings.py and resources.py; without --all only some of them are tried, which takes less than a
minute.

/dev/shm is a separate file system where that is allowed. In the end these jobs may leave nothing there but files that a
report has named, at most 1 MiB for each failed job. The environment is passed on: WEFT_TRANSPORT, and what Open MPI
needs for more ranks than cores (see tests/meson.build).
"""
import argparse
import collections
import os
import pathlib
import random
import sys
import time

import resources
import rows
import trainings
from job import named_files, own_shared_memory, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "apps"))
from launchers import hides_crashes, is_open_mpi

Check = collections.namedtuple("Check", "name kind run")
max_kept = 1 << 20  # bytes


class Bench:
    """Shared by all checks."""

    def __init__(self, options):
        self.folder, self.mpiexec, self.foreign = options.folder.resolve(), options.mpiexec, options.foreign
        self.by_open_mpi = is_open_mpi(options.mpiexec)
        self.hides_crashes = hides_crashes(options.mpiexec)
        self.transport = os.environ.get("WEFT_TRANSPORT", "")
        self.environment = {}
        self.start_up = 0  # seconds that a job takes to start; measured when a job seems slow
        self.patience = 10  # seconds for everything that is not measured
        self.may_mount = own_shared_memory()
        self.named, self.remembered, self.remarks = set(), {}, []
        self.last = None

    def accepts(self, code, expected, way):
        """None: any code but 0, which some mpiexec return after a crash."""
        if expected is None:
            return code != 0 or way == "processes" and self.hides_crashes
        return code == expected

    def program(self, name):
        return str(self.folder / name)

    def note(self, outcome):
        self.last = outcome
        self.named |= named_files(outcome.output)
        return outcome

    def remember(self, name, measure):
        if name not in self.remembered:
            self.remembered[name] = measure()
        return self.remembered[name]

    def remark(self, text):
        self.remarks.append(text)

    def by(self, transport):
        self.transport, self.environment = transport, {"WEFT_TRANSPORT": transport} if transport else {}


def chosen_rows(bench, options):
    chosen = [(row, way, ranks, ranks - 1) for ranks in options.ranks for row in rows.rows * options.repeat for way in row.ways
              if not ((row.alone or row.slow) and ranks != options.ranks[0]) and not (row.foreign and not bench.foreign)]
    if options.random:
        chosen = [(row, way, ranks, ranks - 1 if row.odd_environment else random.randrange(ranks))
                  for row, way, ranks, _ in random.choices(chosen, k=options.random)]
    for row, way, ranks, odd in chosen:
        where = "1" if row.alone else f"{odd} of {ranks}"
        yield Check(row.name, f"{where} {way}", lambda row=row, way=way, ranks=ranks, odd=odd: rows.complaints(bench, row, way, ranks, odd))


def all_checks(bench, options):
    for transport in ["", "mpi"] if options.all else [bench.transport]:
        for check in chosen_rows(bench, options):
            yield check._replace(kind=check.kind + (" by messages" if transport == "mpi" else ""),
                                 run=lambda check=check, transport=transport: (bench.by(transport), check.run())[1])
    bench.by("")
    if options.random:
        return
    if not (bench.folder / "launch_program").exists():
        print("no program that trains was built: faults of trainings and of the machine are not tried")
        return
    for name, kind, quick, run_check in [*trainings.checks(bench), *resources.checks(bench)]:
        if quick or options.all:
            yield Check(name, kind, run_check)


def left_files(bench):
    """Runs another job, which removes the files of killed ones, and checks what is left."""
    run(rows.command(bench, rows.healthy, "processes", 2, 1))
    yield from (f"{path} is gone, though a report has named it" for path in bench.named if not path.exists())
    left = set(pathlib.Path("/dev/shm").glob("weft-*")) if bench.may_mount else bench.named
    yield from (f"{path} was left, and no report names it" for path in left - bench.named)
    yield from (f"{path} has {path.stat().st_blocks * 512} bytes" for path in left if path.exists() and path.stat().st_blocks * 512 > max_kept)
    for path in bench.named:
        path.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--mpiexec", default="mpiexec.mpich")
    parser.add_argument("--foreign", help="the mpiexec of another MPI, if there is one")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--only", nargs="+", help="checks whose names begin so")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--random", type=int, default=0)
    options = parser.parse_args()
    bench = Bench(options)
    if not bench.may_mount:
        print("no file system can be mounted here: a full disk and a small /dev/shm are not tried")
    begun, count, failed = time.monotonic(), 0, 0
    for check in all_checks(bench, options):
        if options.only and not check.name.startswith(tuple(options.only)):
            continue
        began = time.monotonic()
        found = list(check.run())
        count, failed = count + 1, failed + bool(found)
        print(f"{'FAILED' if found else 'ok':6}  {check.kind:22}  {check.name:32}  {time.monotonic() - began:.2f} s", flush=True)
        for remark in bench.remarks:
            print("        " + remark, flush=True)
        bench.remarks.clear()
        if found:
            print("        " + "\n        ".join(found) + "\n" + (bench.last.output if bench.last else ""), flush=True)
    left = list(left_files(bench))
    print("\n".join(left or [f"{len(bench.named)} files that reports have named were there, and no other"]))
    print(f"{count} checks in {time.monotonic() - begun:.0f} s, {failed} failed")
    return 1 if failed or left else 0


sys.exit(main())
