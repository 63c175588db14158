# SPDX-License-Identifier: Apache-2.0
"""What the parts of the kit are made of. A part is a function: of the seconds that it has, to a state, lines that say more,
and figures."""
import json
import time

from programs import last_lines, program, ran


def suite(name, *tests, under=()):
    def part(seconds):
        if under is None:
            return "skipped", ["there is no compute-sanitizer here"], []
        state, output, _ = ran([*under, program(name), *tests], seconds)
        return state, last_lines(output), []
    return part


def of_files(*names):
    """The tests of these files of a suite."""
    return "-#", ",".join(f"[#{name}]" for name in names)


def goals(*names):
    """Each line of a benchmark is a figure: what, ours, theirs, the ratio, its bound, and whether that holds."""
    def part(seconds):
        state, output, _ = ran([program("weft_bench"), "--json", *names], seconds)
        found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        said = [each["skipped"] for each in found if each.get("skipped")]
        if state == "failed (1)" and found:
            state = "missed"  # a goal
        return state, said or ([] if found else last_lines(output)), [check for each in found for check in each.get("checks", [])]
    return part


class Failed(Exception):
    """What failed, and the last lines that it printed."""


def checks(*each):
    """Generators of figures, each of which ends with what fails first, or with its share of the time."""
    def part(seconds):
        end, said, figures = time.monotonic() + seconds, [], []
        for at, check in enumerate(each):
            now = time.monotonic()
            try:
                figures.extend(check(now + (end - now) / (len(each) - at)))
            except Failed as failed:
                said += failed.args
        well = not said and all(figure.get("holds", True) for figure in figures)
        return "passed" if well else "failed", said, figures
    return part


def output_of(command, until):
    state, output, took = ran(command, until - time.monotonic())
    if state != "passed":
        raise Failed(f"{' '.join(map(str, command))}: {state}", *last_lines(output))
    return output, took


def seconds_of_step(command, lengths, until):
    """Two lengths, the last argument of a program, differ by steps only."""
    short, long = (output_of([*command, steps], until)[1] for steps in lengths)
    return (long - short) / (lengths[1] - lengths[0])
