#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the page's Weft prints what the native one does: every collective, even and uneven, on 1 to 5 ranks, with its
adjoint and with a mistake, and the programs of the lessons, for so many seeds. Values, cotangents, tapes and verdicts must be the
same bytes.

    tests/web/same_bytes.py build/tests/exercise_answers build-web/weft.js [--seeds 50]
"""
import argparse
import json
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
collectives = ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "gather", "scatter", "all_to_all", "permute",
               "scan", "exscan"]


def requests(seeds, mistakes):
    number = 0
    for collective in collectives:
        for ranks in range(1, 6):
            for uneven in (False, True):
                for seed in range(seeds):
                    number += 1
                    same = {"collective": collective, "ranks": ranks, "uneven": uneven, "seed": seed}
                    yield same
                    yield {**same, "mistake": mistakes[number % len(mistakes)]}


def programs(seeds):
    """Those of the lessons, and some contrasts."""
    for lesson in json.loads((here.parents[1] / "tools/web/lessons.json").read_text()):
        for step in lesson["steps"]:
            for seed in range(seeds if "program" in step else 0):
                request = {"program": "\n".join(step["program"]), "ranks": step.get("ranks", 1), "seed": seed}
                yield {**request, "right": "\n".join(step["right"])} if "right" in step and seed == 0 else request
    for ranks in (1, 3, 4):
        for steps in (0, 10, 100):
            yield {"contrast": {"ranks": ranks, "steps": steps}}


def replies(command, lines):
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def without_places(reply):
    """Where the collective was called depends on how the compiler was told the path."""
    reply = json.loads(reply)
    for tape in reply.get("record", {}).get("tapes", []):
        for line in tape:
            line.pop("place")
    return reply


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("native")
    parser.add_argument("web")
    parser.add_argument("--seeds", type=int, default=50)
    options = parser.parse_args()
    mistakes = [mistake["name"] for mistake in json.loads(replies([options.native], ["{}"])[0])["mistakes"][1:]]
    lines = [json.dumps(request) for asked in (requests(options.seeds, mistakes), programs(options.seeds)) for request in asked]
    native = replies([options.native], lines)
    web = replies(["node", here / "in_node.js", options.web], lines)
    if len(native) != len(lines) or len(web) != len(lines):
        sys.exit(f"{len(lines)} requests, {len(native)} native replies, {len(web)} of the page")
    differ = [line for line, a, b in zip(lines, native, web) if without_places(a) != without_places(b) or ("error" in json.loads(a) and "program" not in line)]
    for line in differ[:5]:
        print("differs:", line)
    print(f"{len(lines)} requests, {len(differ)} with other bytes on the page")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
