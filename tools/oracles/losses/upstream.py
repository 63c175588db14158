#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the losses of libraries, and compares the results with stored ones.

    upstream.py RECORDED STORED

Writes one file per library to the folder RECORDED. Prints, for every loss and mode, the gradients of the features on
three processes as a multiple of the correct ones: W times the gradient of one process with the whole batch, because the
mean over ranks follows. Exits with 1 if a result differs from the folder STORED, which the tests read. To accept new
results, copy the files there.
"""
import importlib
import json
import pathlib
import sys

from cases import record

MODULES = ("lightly_losses", "open_clip_losses", "metrics", "quantizers", "torch_losses")


def numbers(part):
    """All numbers of a recorded case except shapes, in order."""
    if isinstance(part, dict):
        if "shape" in part:
            return part["values"]
        return [x for key in sorted(part) for x in numbers(part[key])]
    if isinstance(part, list):
        return [x for item in part for x in numbers(item)]
    return [part] if isinstance(part, (int, float)) else []


def largest(values):
    return max((abs(x) for x in values), default=0.0)


def fit(actual, expected):
    """The factor between two lists, and the largest remaining difference, relative to the largest expected value."""
    size = sum(e * e for e in expected)
    factor = sum(a * e for a, e in zip(actual, expected)) / size if size else 1.0
    left = largest(a - factor * e for a, e in zip(actual, expected)) / (largest(expected) or 1.0)
    return f"{factor:10.6f} {left:8.0e}"


def row(case, apart):
    ranks, one = case.get("ranks", {}), case["one"]
    text = f"  {case['loss']:24} {case['mode']:44}"
    if "rows" in ranks:
        wanted = [len(ranks["values"]) * g for g in numbers(one["rows"])]
        text += fit(numbers(ranks["rows"]), wanted)
    else:
        text += f"{'one process':>19}"
    shared = [list(parts) for parts in zip(*(numbers(s) for s in ranks.get("shared", [])))]
    text += fit([sum(parts) / len(parts) for parts in shared], numbers(one["shared"])) if shared else " " * 19
    return text + f" {apart:8.0e}"


def difference(case, stored):
    """The largest difference between a recorded case and the stored one, relative to the largest stored number."""
    a, b = numbers(case), numbers(stored)
    return largest(x - y for x, y in zip(a, b)) / (largest(b) or 1.0) if len(a) == len(b) else float("inf")


def write(path, recorded):
    head = {key: value for key, value in recorded.items() if key != "cases"}
    cases = ",\n".join(json.dumps(case) for case in recorded["cases"])
    path.write_text(json.dumps(head)[:-1] + ', "cases": [\n' + cases + "\n]}\n")


def compare(recorded, stored):
    """Prints a library's rows. Returns whether all results equal the stored ones, to the precision of the library."""
    print(f"{recorded['library']} {recorded['version']}, torch {recorded['torch']};",
          f"stored are those of {stored['version']}, torch {stored['torch']}" if stored else "none are stored")
    known = {(case["loss"], case["mode"]): case for case in stored.get("cases", [])}
    good = len(known) == len(recorded["cases"])
    for case in recorded["cases"]:
        apart = difference(case, known.get((case["loss"], case["mode"]), {}))
        print(row(case, apart))
        good = good and apart <= case["precision"]
    return good


def main(folder, stored):
    folder, stored = pathlib.Path(folder), pathlib.Path(stored)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{'':71}{'features / W':>10} {'left':>7}{'scalars':>10} {'left':>8} {'stored':>8}")
    good = True
    for name in MODULES:
        module = importlib.import_module(name)
        recorded = record(module.PACKAGE, module.CASES)
        write(folder / f"{module.PACKAGE}.json", recorded)
        known = stored / f"{module.PACKAGE}.json"
        good = compare(recorded, json.loads(known.read_text()) if known.exists() else {}) and good
    print("All is as stored." if good else f"Not all is as stored; what was measured is in {folder}.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
