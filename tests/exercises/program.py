#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command `weft grade` as learners call it: on an exercise that is not written, and in a build of other programs
that are right, wrong, killed, or not compiled.

    tests/exercises/program.py PROGRAM
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

program = pathlib.Path(sys.argv[1])
failures = 0


def expect(command, status, said):
    global failures
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    printed = done.stdout + done.stderr
    if done.returncode != status or said not in printed:
        failures += 1
        print(f"{command}: ends with {done.returncode}, not {status} and '{said}':\n{printed}")


expect([program, "grade", 10], 2, "exercises/10_codebook.cpp: not written yet\n")
for number in 0, 11, "x":
    expect([program, "grade", number], 64, "EXERCISE: ")

with tempfile.TemporaryDirectory() as folder:
    build = pathlib.Path(folder)
    copy = build / "tools/weft/weft"
    copy.parent.mkdir(parents=True)
    shutil.copy(program, copy)
    expect([copy, "grade", 1], 66, f"weft: grade: {build} is no build of Weft; call build/tools/weft/weft of the clone")
    scripts = {"01": "echo Right.", "02": "echo S2; exit 1", "03": "kill -SEGV $$"}
    rules = "rule copied\n  command = cp $in $out && chmod +x $out\n"
    for number, script in scripts.items():
        (build / f"{number}.sh").write_text(f"#!/bin/sh\n{script}\n")
        rules += f"build exercises/exercise_{number}: copied {number}.sh\n"
    (build / "build.ninja").write_text(rules + "build exercises/exercise_04: copied missing.sh\n")
    expect([copy, "grade", 1], 0, "Right.\n")
    expect([copy, "grade", 2], 1, "S2\n")
    expect([copy, "grade", 3], 65, "weft: grade: exercise 3 was ended by signal 11, Segmentation fault\n")
    expect([copy, "grade", 4], 65, "weft: grade: exercise 4 does not compile\n")
    expect(["env", "PATH=/nowhere", copy, "grade", 4], 65, "weft: ninja cannot be started: No such file or directory\n")

sys.exit(failures > 0)
