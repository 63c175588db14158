#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program `weft` on what the examples of weft.torch have compared, which python/tests/store_examples.py keeps: right steps are
correct, and mistakes are told as they are where PyTorch runs.

    tests/verify/steps.py PROGRAM
"""
import json
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).parents[2]
causes = json.loads((root / "tests/files/steps/causes.json").read_text())
failures = []


def judged(example, case, code):
    folder = root / "tests/files/steps" / example / case
    ran = subprocess.run([sys.argv[1], "verify", "--json", folder], capture_output=True, text=True)
    if ran.returncode != code:
        failures.append(f"{example}, {case}: the exit code is {ran.returncode}, not {code}\n{ran.stdout}{ran.stderr}")
        return {}
    (verdict,) = json.loads(ran.stdout)["verdicts"]
    return verdict


def check(example, cause):
    judged(example, "right", 0)
    found = judged(example, "wrong", 1).get("best", {})
    told = f"{found.get('signature')}: {found.get('name')}".removeprefix(": ")
    if not told.startswith(cause) or not found.get("repair"):
        failures.append(f"{example}: the cause is '{told}' with the repair '{found.get('repair')}', not '{cause}'")


def main():
    examples = {path.stem for path in root.glob("python/examples/*.py")}
    if examples != set(causes):
        failures.append(f"{', '.join(sorted(examples ^ set(causes)))}: an example without a cause, or the reverse")
    for example, cause in causes.items():
        check(example, cause)
    print(*failures, f"{len(causes)} examples, {len(failures)} failures", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
