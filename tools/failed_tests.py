#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints which tests of the last `meson test` in FOLDER failed, and the end of each one's output.

    tools/failed_tests.py FOLDER
"""
import json
import pathlib
import sys

lines_of_each = 40

folder = pathlib.Path(sys.argv[1])
log = folder / "meson-logs" / "testlog.json"
tests = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
failed = [test for test in tests if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP")]
if not failed:
    print(f"==> {folder}: no test failed, so it did not get as far as its tests")
for test in failed:
    print(f"==> {folder}: {test['name']}: {test['result']} after {test['duration']:.0f} s")
    printed = test.get("stdout", "") + test.get("stderr", "")
    print("\n".join(printed.splitlines()[-lines_of_each:]))
