#!/usr/bin/env python3
"""Runs the program bits for several kinds of CPU; all must print the same.

    tests/bits.py BITS KIND [KIND ...]
"""
import os
import subprocess
import sys


def lines(program, kind):
    ran = subprocess.run([program], env=os.environ | {"WEFT_CPU": kind}, text=True, capture_output=True)
    if "this machine lacks" in ran.stderr:
        return None
    if ran.returncode:
        sys.exit(f"{kind}: {ran.stderr.strip()}, exit code {ran.returncode}")
    return ran.stdout.splitlines()


def main():
    program, *kinds = sys.argv[1:]
    nothing = subprocess.run([program], env=os.environ | {"WEFT_CPU": "v9"}, text=True, capture_output=True)
    if nothing.stdout or nothing.stderr != f"error: WEFT_CPU=v9: there are only {', '.join(kinds)}\n":
        sys.exit(f"a kind of CPU that there is not: {nothing.stderr}")
    first, *others = [(kind, found) for kind in kinds if (found := lines(program, kind))]
    different = [f"{first[0]}: {mine}\n{kind}: {theirs}"
                 for kind, found in others for mine, theirs in zip(first[1], found, strict=True) if mine != theirs]
    for difference in different[:20]:
        print(difference)
    print(f"{len(first[1])} results on {', '.join(kind for kind, _ in [first, *others])}: {len(different)} differ")
    sys.exit(len(different) > 0)


main()
