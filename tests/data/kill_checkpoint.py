#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeatedly kills a program that writes checkpoints at random times, and checks that each restart finds a sound
checkpoint, no earlier than the last that was acknowledged, and the best of all that were saved.

    tests/data/kill_checkpoint.py PROGRAM [--kills 40] [--seed N] [--folder DIR]

PROGRAM is tests/kill_checkpoint, which prints what it has loaded and each step that it has saved.
"""
import argparse
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time


def live_and_die(program, folder, seconds):
    """Runs the program for this long after it has loaded. Returns its lines, its errors and its exit code."""
    job = subprocess.Popen([program, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = job.stdout.readline()
    time.sleep(seconds)
    job.send_signal(signal.SIGKILL)
    rest = job.stdout.read()  # communicate() would lose what readline() has read ahead
    complaint = job.stderr.read()
    return (first + rest).splitlines(), complaint, job.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--folder", help="where the checkpoints are written (default: a temporary folder)")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    draw = random.Random(options.seed)
    acknowledged = lost = damaged = unacknowledged = leftovers = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for kill in range(options.kills):
            lines, complaint, code = live_and_die(options.program, folder, draw.uniform(0, 0.06))
            if code != -signal.SIGKILL or complaint or not lines:
                sys.exit(f"kill {kill}: ended with {code} instead of being killed: {complaint}")
            _, loaded, _, bad = lines[0].split()
            lost += int(loaded) < acknowledged
            unacknowledged += int(loaded) > acknowledged
            damaged += int(bad)
            if int(loaded) > acknowledged + 1:
                sys.exit(f"kill {kill}: loaded step {loaded}, but only {acknowledged} and perhaps one more were saved")
            acknowledged = max([int(loaded)] + [int(line.split()[1]) for line in lines[1:]])
            names = [path.name for path in pathlib.Path(folder).iterdir()]
            temporaries = sum(name.endswith(".weft-tmp") for name in names)
            leftovers += temporaries
            if temporaries > 1 or len(names) - temporaries > 6:  # two and the best, or more if killed before the oldest is removed
                sys.exit(f"kill {kill}: too many files: {names}")
    seconds = time.monotonic() - began
    print(f"{options.kills} kills in {seconds:.1f} s, {acknowledged} checkpoints saved: {lost} acknowledged ones lost, "
          f"{damaged} damaged files; {leftovers} kills within a write, {unacknowledged} between it and its acknowledgment")
    return 1 if lost or damaged or acknowledged == 0 or leftovers == 0 else 0


sys.exit(main())
