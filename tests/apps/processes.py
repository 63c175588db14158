# SPDX-License-Identifier: Apache-2.0
"""The processes of a run, found by command line, because mpiexec gives each rank a session of its own."""
import os
import pathlib
import signal


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
        for log in pathlib.Path("/dev/shm").glob(f"weft-{process}-*"):
            log.unlink(missing_ok=True)
