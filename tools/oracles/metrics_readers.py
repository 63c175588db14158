# SPDX-License-Identifier: Apache-2.0
"""Trains a few steps, and reads what was measured as other programs do: metrics.jsonl and metrics.csv with pandas, and the
events with TensorBoard's EventAccumulator. Every value must be that of the line in metrics.jsonl, also of a training that
was resumed. See tools/oracles/run_metrics.

    metrics_readers.py BUILD
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import pandas
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

failures = 0


def check(name, ok, *shown):
    global failures
    if not ok:
        failures += 1
        print("FAILED:", name, *shown)


def values_of(run):
    """By name and step, from the text itself."""
    values, times = {}, {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        step, time = row.pop("step"), row.pop("time")
        times[step] = time
        for name, value in row.items():
            values[name, step] = value
    return values, times


def of_table(table):
    return {(name, int(step)): value for name in table.columns if name not in ("step", "time")
            for step, value in zip(table["step"], table[name]) if not math.isnan(value)}


def check_run(run):
    values, times = values_of(run)
    for name, table in (("metrics.jsonl", pandas.read_json(run / "metrics.jsonl", lines=True, precise_float=True)),
                        ("metrics.csv", pandas.read_csv(run / "metrics.csv"))):
        read = of_table(table)
        check(f"{run.name}: the values of {name}", read == values, {key: (read.get(key), values.get(key))
                                                                    for key in read.keys() | values.keys() if read.get(key) != values.get(key)})
        check(f"{run.name}: the times of {name}", dict(zip(table["step"], table["time"])) == times)
    events = EventAccumulator(str(run), size_guidance={"scalars": 0}).Reload()
    read = {(tag, event.step): event for tag in events.Tags()["scalars"] for event in events.Scalars(tag)}
    check(f"{run.name}: what TensorBoard shows", read.keys() == values.keys(), read.keys() ^ values.keys())
    # The file's scalars are f32.
    different = {key: (event.value, values[key]) for key, event in read.items() if event.value != numpy.float32(values[key])}
    check(f"{run.name}: its values", not different, different)
    check(f"{run.name}: its times", all(event.wall_time == times[step] for (_, step), event in read.items()))
    return len(values)


def main():
    build = pathlib.Path(sys.argv[1])
    small_data = pathlib.Path(__file__).resolve().parents[2] / "tests/apps/small_data.py"
    with tempfile.TemporaryDirectory(prefix="weft_metrics_") as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.executable, small_data, folder / "data", "--train", "96", "--test", "32"], check=True)

        def train(program, out, *more):
            small = ["--data", folder / "data", "--out", folder / out, "--ranks", 2, "--batch", 24, "--width", 2, "--watch-every", 3, "--quiet"]
            command = [build / "apps" / program, *small, *more]
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
            return check_run(folder / out)

        counts = [train("train_contrastive", "contrastive", "--steps", 10, "--clip", 1, "--no-probes"), train("train_vq", "vq", "--steps", 10)]
        counts.append(train("train_vq", "vq", "--steps", 14, "--resume", "auto"))
    check("values were compared", min(counts) > 40, counts)
    print(f"{sum(counts)} values of 3 runs, each read in 3 ways: " + ("all as written" if failures == 0 else f"{failures} failures"))
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
