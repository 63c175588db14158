# SPDX-License-Identifier: Apache-2.0
"""Measures whole trainings as commands, one after the other in rounds: for against_ddp and against_twins."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import typing


class Measured(typing.NamedTuple):
    images_per_second: float
    images_per_cpu_second: float
    first_step: float  # seconds
    memory: float  # MiB


def cpu_seconds(process):
    """Of a running process and its descendants."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = [child for file in pathlib.Path(f"/proc/{process}/task").glob("*/children")
                    for child in file.read_text().split()]
    except OSError:  # it has ended
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, children))


def watched(process, steps_done, warm_up):
    """Waits for a process. Returns its exit code, its usage, which includes the children that it has waited for, and
    its CPU seconds per step, from the warm-up to the last step, after which train_contrastive looks at the features."""
    seen = []
    while True:
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        steps = steps_done()
        if steps >= warm_up and (not seen or steps > seen[-1][0]):
            seen.append((steps, cpu_seconds(process.pid)))
        time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(status)
    spent = (seen[-2][1] - seen[0][1]) / (seen[-2][0] - seen[0][0]) if len(seen) > 2 else math.nan
    return process.returncode, used, spent


def measured(command, folder, batch, warm_up):
    """Runs a command, in which `{out}` is a folder for its files. Steps are in metrics.jsonl there, or in its output.
    The last step is not counted."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        printed, metrics = pathlib.Path(out, "printed"), pathlib.Path(out, "run", "metrics.jsonl")

        def lines():
            return (metrics if metrics.exists() else printed).read_text().splitlines()

        begin = time.time()
        with printed.open("w") as file:
            process = subprocess.Popen([word.format(out=out + "/run") for word in command], stdout=file)
            code, used, cpu_per_step = watched(process, lambda: len(lines()), warm_up)
        if code == 77:
            sys.exit(77)
        if code != 0:
            sys.exit(f"error: exit code {code} from {' '.join(command)}")
        times = [json.loads(line)["time"] for line in lines()]
    rate = (len(times) - 1 - warm_up) * batch / (times[-2] - times[warm_up - 1])
    return Measured(rate, batch / cpu_per_step, times[0] - begin, used.ru_maxrss / 1024)


def busy_seconds():
    """The busy seconds of all cores since the machine started, and those of this process and its finished children."""
    user, nice, system = map(int, pathlib.Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])


def rounds(sides, count, batch, warm_up):
    """What each command of `sides` measured in each round, and how many cores others kept busy meanwhile."""
    results = {name: [] for name in sides}
    begin, (all_before, ours_before) = time.time(), busy_seconds()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count + 1):
            for name in list(sides)[::1 if number % 2 else -1]:
                result = measured(sides[name], folder, batch, warm_up)
                if number > 0:  # round 0 warms the file cache
                    results[name].append(result)
    all_after, ours_after = busy_seconds()
    return results, (all_after - all_before - ours_after + ours_before) / (time.time() - begin)
