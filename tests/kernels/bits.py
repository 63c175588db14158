#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the program bits for several kinds of CPU; all outputs must be equal.

    tests/kernels/bits.py BITS KIND [KIND ...] [--others COMMAND ...]

--others are commands that run it elsewhere, such as "qemu-aarch64 build/aarch64/tests/bits".
"""
import argparse
import os
import shlex
import subprocess
import sys


def run(command, environment):
    return subprocess.run(command, env=os.environ | environment, text=True, capture_output=True)


def lines(name, command, environment):
    ran = run(command, environment)
    if "this machine lacks" in ran.stderr:
        return None
    if ran.returncode:
        sys.exit(f"{name}: {ran.stderr.strip()}, exit code {ran.returncode}")
    return ran.stdout.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("kinds", nargs="+")
    parser.add_argument("--others", nargs="*", default=[])
    options = parser.parse_args()
    wrong = run([options.program], {"WEFT_CPU": "v9"})
    if wrong.stdout or not wrong.stderr.startswith("error: WEFT_CPU=v9: there are only base"):
        sys.exit(f"a kind of CPU that there is not: {wrong.stderr}")
    places = [(kind, [options.program], {"WEFT_CPU": kind}) for kind in options.kinds]
    places += [(other, shlex.split(other), {}) for other in options.others]
    results = [(name, found) for name, *how in places if (found := lines(name, *how))]
    (first, expected), *others = results
    different = [f"{first}: {mine}\n{name}: {theirs}"
                 for name, found in others for mine, theirs in zip(expected, found, strict=True) if mine != theirs]
    for difference in different[:20]:
        print(difference)
    print(f"{len(expected)} results on {', '.join(name for name, _ in results)}: {len(different)} differ")
    sys.exit(len(different) > 0)


main()
