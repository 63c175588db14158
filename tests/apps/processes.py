# SPDX-License-Identifier: Apache-2.0
"""The processes of a run: mpiexec gives each rank a session of its own, so they are known by their command lines."""
import os
import pathlib
import signal


def processes_of(out):
    """The numbers of the living ones that were given this folder."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if str(out).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            pass  # it has ended since
    return found


def kill_all(out):
    """When this returns there are none: whoever was being started meanwhile is killed, too. What they would have left to
    tell of their last calls goes with them."""
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
