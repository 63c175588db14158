# SPDX-License-Identifier: Apache-2.0
"""Starts one job that will fail, watches it, and tells it from others."""
import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import uuid

deadline = 1.0  # seconds that ranks wait

# code: None if the job never ended. orphans: processes left behind. slowdown: the largest factor by which other
# processes can have slowed the job down, 1 on a quiet machine.
Outcome = collections.namedtuple("Outcome", "code seconds output orphans slowdown")
max_slowdown = 5


class Load:
    """The CPU time that others use during a job: other processes, and other machines on the same processor. Deadlines
    count the time that a rank could have used, so they come later on a busy machine."""

    def __init__(self):
        self.before, self.begin = self.cpu_ticks(), time.monotonic()

    @staticmethod
    def cpu_ticks():
        """CPU time by process, including its ended children; "steal" is that of other machines."""
        ticks = {"steal": int(pathlib.Path("/proc/stat").read_text().split()[8])}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and entry.name != os.readlink("/proc/self"):
                try:
                    ticks[entry.name] = sum(map(int, (entry / "stat").read_text().rpartition(")")[2].split()[11:15]))
                except OSError:
                    pass  # gone
        return ticks

    def slowdown(self, token):
        """The job's processes have `token` in their environment."""
        seconds, cores, job = time.monotonic() - self.begin, os.cpu_count(), set(map(str, processes_with(token)))
        ticks = sum(max(0, now - self.before.get(name, 0)) for name, now in self.cpu_ticks().items() if name not in job)
        others = ticks / os.sysconf("SC_CLK_TCK") / max(seconds, 0.01)
        return cores / max(cores - others, cores / max_slowdown)


def processes_with(token):
    """The ids of processes that have the token in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and token in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass  # gone, or not ours
    return found


def run(command, environment=None, disturb=None, limit=40):
    """Calls `disturb` with the job's token while the job runs."""
    token = f"WEFT_TEST={uuid.uuid4()}"
    name, value = token.split("=")
    environment = {**os.environ, "WEFT_TIMEOUT": str(deadline), **(environment or {}), "MPIEXEC_TIMEOUT": "30", name: value}
    load, begin = Load(), time.monotonic()
    job = subprocess.Popen(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
    disturber = threading.Thread(target=disturb or (lambda _: None), args=[token.encode()])
    disturber.start()
    try:
        output, code = job.communicate(timeout=limit)[0], job.returncode
    except subprocess.TimeoutExpired:
        for each in processes_with(token.encode()):
            os.kill(each, signal.SIGKILL)
        output, code = job.communicate()[0], None
    seconds, slowdown = time.monotonic() - begin, load.slowdown(token.encode())
    disturber.join()
    for _ in range(200):  # mpiexec ends before the ranks
        if not processes_with(token.encode()):
            break
        time.sleep(0.01)
    return Outcome(code, seconds, output.decode(errors="replace"), processes_with(token.encode()), slowdown)


def named_files(output):
    """The files with all ranks' last calls, as named in the reports."""
    return {pathlib.Path(path) for path in re.findall(r"the last calls of all ranks are in (\S+)", output)}


def on_ranks(mpiexec, ranks, usual, odd=None, other=None):
    """A command that starts ranks, one of which is another or a missing program."""
    parts = [(ranks, usual)] if other is None else [(odd, usual), (1, other), (ranks - odd - 1, usual)]
    command = [mpiexec]
    for count, program in parts:
        if count:
            command += [":"] * (len(command) > 1) + ["-n", str(count), *program]
    return command


def with_environment(environment, command):
    return ["env", *(f"{name}={value}" for name, value in environment.items()), *command]


def with_limit(limit, command):
    """`limit` is an argument of the shell's ulimit, such as "-n 8"."""
    return ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *command]


def with_mounts(mounts, command, script='exec "$@"'):
    """Runs in a separate mount namespace. `mounts` maps places to sizes: {"/dev/shm": "4m"}."""
    lines = [f"mount -t tmpfs -o size={size} none '{place}'" for place, size in mounts.items()]
    return ["unshare", "-rm", "sh", "-c", " && ".join([*lines, script]), "sh", *command]


def may_mount():
    return subprocess.run(with_mounts({"/mnt": "1m"}, ["true"]), stderr=subprocess.DEVNULL).returncode == 0


def own_shared_memory():
    """Restarts this program with a separate /dev/shm where that is allowed. Returns whether it has one."""
    if "WEFT_OWN_SHM" not in os.environ and may_mount():
        os.environ["WEFT_OWN_SHM"] = "1"
        command = with_mounts({"/dev/shm": "50%"}, [sys.executable, *sys.argv])
        os.execvp(command[0], command)
    return "WEFT_OWN_SHM" in os.environ
