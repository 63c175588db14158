# SPDX-License-Identifier: Apache-2.0
"""The processes of a run, found by command line, because mpiexec gives each rank a session of its own."""
import os
import pathlib
import signal
import time


def processes_of(out):
    """The ids of the living processes with this folder in their command line."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if str(out).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            pass  # it has ended meanwhile
    return found


def has_ended(process):
    """Whether it has closed its files, and so has given back its lock: its command line is gone before."""
    threads = pathlib.Path(f"/proc/{process}/task").glob("*/stat")
    try:
        return all(stat.read_text().rpartition(")")[2].split()[0] in "ZX" for stat in threads)
    except OSError:
        return False  # one has ended meanwhile


def kill_all(out):
    """Kills all of them, including those that start meanwhile, and removes the logs of their last calls."""
    killed = set()
    while processes := processes_of(out):
        killed.update(processes)
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has ended by itself
    for process in killed:
        while not has_ended(process):
            time.sleep(0.001)
        for log in pathlib.Path("/dev/shm").glob(f"weft-{process}-*"):
            log.unlink(missing_ok=True)
