#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints which tests of the last `meson test` in FOLDER failed, what each one says around a failure, and its end.

    tools/failed_tests.py FOLDER
"""
import json
import pathlib
import sys

before, after, at_the_end = 12, 12, 40


def telling(lines):
    """The lines near a failed assertion, and the last ones: Catch tells a failure where it happens, in the middle."""
    keep = set(range(max(0, len(lines) - at_the_end), len(lines)))
    for at, line in enumerate(lines):
        if "FAILED" in line:
            keep.update(range(max(0, at - before), min(len(lines), at + after)))
    return [lines[at] for at in sorted(keep)]


folder = pathlib.Path(sys.argv[1])
log = folder / "meson-logs" / "testlog.json"
tests = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
failed = [test for test in tests if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP")]
if not failed:
    print(f"==> {folder}: no test failed, so it did not get as far as its tests")
for test in failed:
    print(f"==> {folder}: {test['name']}: {test['result']} after {test['duration']:.0f} s")
    printed = test.get("stdout", "") + test.get("stderr", "")
    print("\n".join(telling(printed.splitlines())))
