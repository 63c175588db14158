#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the traces of trainings: every rank's steps, every collective on all its ranks, arrows between ranks that lie
in calls, the ops of the step that is recorded and of no other, the same weights as without a trace, a file for each rank
in a folder, and data that are prepared while the step before runs, if there is a core for that.

    tests/apps/trace.py PROGRAM [--mpiexec NAME]
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

steps, recorded = 3, 2


def weights(command):
    ended = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"weights ([0-9a-f]{16})", ended.stdout)
    return found[1] if found else sys.exit(f"{' '.join(map(str, command))} ended with {ended.returncode}:\n{ended.stderr}")


def events_of(trace, phase):
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def complaints_of_arrows(trace, slices):
    """Each arrow begins in a call of one rank and ends, not earlier, in the same call of another."""
    ends = collections.defaultdict(dict)
    for phase in "s", "f":
        for event in events_of(trace, phase):
            if ends[event["id"]].setdefault(phase, event) is not event:
                yield f"two ends of one arrow: {event}"

    def calls_at(end):
        return {call["args"]["id"] for call in slices
                if call["pid"] == end["pid"] and call["ts"] <= end["ts"] <= call["ts"] + call["dur"] + 1e-3}
    for arrow in ends.values():
        if set(arrow) != {"s", "f"} or arrow["s"]["pid"] == arrow["f"]["pid"] or arrow["s"]["ts"] > arrow["f"]["ts"]:
            yield f"no arrow between two ranks: {arrow}"
        elif not calls_at(arrow["s"]) & calls_at(arrow["f"]):
            yield f"the two ends of an arrow are in no call that both ranks make: {arrow}"


def ranks_in(words):
    """Of "0-3, 6"."""
    ends = [[int(end) for end in part.split("-")] for part in words.split(", ")]
    return {rank for first, *last in ends for rank in range(first, (last or [first])[0] + 1)}


def complaints(trace, ranks):
    if trace["distributedInfo"]["world_size"] != ranks or trace["distributedInfo"]["rank"] != 0:
        yield f"of other ranks: {trace['distributedInfo']}"
    slices = events_of(trace, "X")
    for rank in range(ranks):
        names = [event["name"] for event in slices if event["pid"] == rank and event["cat"] == "part"]
        for part, times in [(f"step {step + 1}", 1) for step in range(steps)] + [("data", steps), ("after the last step", 1)]:
            if names.count(part) != times:
                yield f"rank {rank} has {part} {names.count(part)} times"
    calls = [event for event in slices if event["cat"] in ("collective", "message")]
    places = collections.defaultdict(set)
    for call in calls:
        places[call["args"]["id"], call["args"]["ranks"], call["args"]["call"].split()[0]].add(call["pid"])
    for (_, of, verb), seen in places.items():
        if ranks_in(of) != seen:
            yield f"{verb} of ranks {of} is on ranks {seen}"
    sums = sum(len(seen) == ranks for (_, _, verb), seen in places.items() if verb == "all_reduce")
    if sums < 2 * steps:  # of gradients and of the loss
        yield f"{sums} sums over all ranks in {steps} steps"
    arrows = events_of(trace, "s")
    if (len(arrows) > 0) != (ranks > 1):
        yield f"{len(arrows)} arrows between {ranks} ranks"
    yield from complaints_of_arrows(trace, calls)


def complaints_of_data(command, file):
    """With a core for it, the data of each step are prepared before it takes them, and often while the step before runs."""
    def trace_of(*more):
        weights([*command, "--batch", "48", "--steps", "20", "--trace", file, *more])
        return json.loads(file.read_text())
    cores = trace_of()["distributedInfo"]["world_size"]  # the default is a rank for each
    slices = events_of(trace_of("--ranks", "1"), "X")
    prepared = {event["name"]: event for event in slices if event["tid"] == 1}
    if (cores > 1) != bool(prepared):
        yield f"on {cores} cores, a thread beside the steps of one rank has prepared {list(prepared)}"
    if not prepared:
        return
    overlapped = 0
    for step in range(2, 21):
        data = prepared[f"data of step {step}"]
        before, taken = [event for event in slices if event["name"] == "data"][step - 2:step]
        if not before["ts"] <= data["ts"] < data["ts"] + data["dur"] <= taken["ts"] + taken["dur"] + 1e-3:
            yield f"data are prepared at {data}, after {before} and for {taken}"
        step_before = next(event for event in slices if event["name"] == f"step {step - 1}")
        overlapped += data["ts"] < step_before["ts"] + step_before["dur"]
    if overlapped < 5:
        yield f"the data of only {overlapped} of 20 steps are prepared while another step runs"


def complaints_of_ops(trace, tapes):
    """Every node of the recorded step is an op of forward, and of backward if it has a cotangent, one after the other."""
    slices = events_of(trace, "X")
    for rank in range(tapes["ranks"]):
        mine = [event for event in slices if event["pid"] == rank]
        step = next(event for event in mine if event["name"] == f"step {recorded}")
        ops = sorted((event for event in mine if event["cat"] in ("forward", "backward")), key=lambda event: event["ts"])
        for op, later in zip(ops, [*ops[1:], {"ts": step["ts"] + step["dur"]}]):
            if op["ts"] < step["ts"] or op["ts"] + op["dur"] > later["ts"] + 2e-3:
                yield f"rank {rank}: {op} is not within the step, or not before {later}"
        nodes = [(line["op"], line["ranks"][rank]) for tape in tapes["tapes"] for line in tape if line["ranks"][rank]]
        forward, backward = ([op["name"] for op in ops if op["cat"] == kind] for kind in ("forward", "backward"))
        of_tape = [op for op, _ in nodes if op != "leaf" and not op.startswith("parameter ")]
        if collections.Counter(of_tape) - collections.Counter(forward):
            yield f"rank {rank} lacks {collections.Counter(of_tape) - collections.Counter(forward)}"
        if len(backward) != sum(node[6] != "" for _, node in nodes):
            yield f"rank {rank} has {len(backward)} ops of backward for {len(nodes)} nodes"
        if any(op["ts"] < max(each["ts"] for each in ops if each["cat"] == "forward") for op in ops if op["cat"] == "backward"):
            yield f"rank {rank} is in backward before forward has ended"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mpiexec")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make = pathlib.Path(__file__).resolve().with_name("small_data.py")
        subprocess.run([sys.executable, make, folder / "data", "--train", "96", "--test", "32"], check=True)
        small = [options.program, "--no-probes", "--quiet", "--fresh", "--data", folder / "data", "--out", folder / "run"]
        found += complaints_of_data(small, folder / "data.json")
        for ranks in 1, 2, 3, 5:
            ways = {"threads": ([], ["--ranks", str(ranks)])}
            if options.mpiexec:
                ways["processes"] = [options.mpiexec, "-n", str(ranks)], []
            for way, (launcher, threads) in ways.items():
                command = [*launcher, *small, *threads, "--steps", str(steps), "--batch", "24", "--width", "2"]
                file, each = folder / f"{ranks} {way}.json", folder / f"{ranks} {way}"
                each.mkdir()
                expected = weights(command)
                if {weights([*command, "--trace", place]) for place in (file, each)} != {expected}:
                    found.append(f"{ranks} {way}: a trace changes the weights")
                trace = json.loads(file.read_text())
                if {event["cat"] for event in events_of(trace, "X")} & {"forward", "backward"}:
                    found.append(f"{ranks} {way}: ops without a recorded step")
                found += [f"{ranks} {way}: {complaint}" for complaint in complaints(trace, ranks)]
                files = {path.name: json.loads(path.read_text()) for path in each.iterdir()}
                if set(files) != {f"rank-{rank}.json" for rank in range(ranks)}:
                    found.append(f"{ranks} {way}: a folder has {sorted(files)}")
                for rank in range(ranks):
                    of_rank = files[f"rank-{rank}.json"]
                    if of_rank["distributedInfo"]["rank"] != rank or {event["pid"] for event in of_rank["traceEvents"]} != {rank}:
                        found.append(f"{ranks} {way}: rank-{rank}.json is of other ranks")
                if weights([*command, "--trace", file, "--record-step", str(recorded)]) != expected:
                    found.append(f"{ranks} {way}: a trace of ops changes the weights")
                of_ops = json.loads(file.read_text())
                found += [f"{ranks} {way}, ops: {complaint}" for complaint in complaints(of_ops, ranks)]
                found += [f"{ranks} {way}, ops: {complaint}"
                          for complaint in complaints_of_ops(of_ops, json.loads((folder / "run/tapes.json").read_text()))]
                print(f"{ranks} {way}: {len(events_of(trace, 'X'))} events, {len(events_of(trace, 's'))} arrows")
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
