#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings under a Slurm of their own, with two nodes inside this machine, as root. Without Debian's munge, slurmctld,
slurmd and slurm-client (tools/install_dependencies slurm) this exits with 77.

    tests/faults/slurm.py WEFT LAUNCH_PROGRAM
"""
import argparse
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from job import processes_with, run
from supervised_jobs import hash_in, kill, parent_of, script_of_document, words_of

deadline = 10  # seconds that ranks wait

configuration = """
ClusterName=weft
SlurmctldHost={host}
SlurmctldPort={ports[0]}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdTimeout=10
MailProg=/bin/true
NodeName=one NodeHostname={host} Port={ports[1]} CPUs=2
NodeName=two NodeHostname={host} Port={ports[2]} CPUs=2
PartitionName=all Nodes=one,two Default=YES
"""


def free_ports(number):
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_server(("", 0))) for _ in range(number)]
        return [each.getsockname()[1] for each in sockets]


class Slurm:
    """Its daemons, and what users type."""

    def __init__(self, folder):
        self.folder = folder
        folder.chmod(0o755)  # munge wants to reach its socket
        text = configuration.format(host=socket.gethostname(), ports=free_ports(3), folder=folder)
        (folder / "slurm.conf").write_text(text)
        (folder / "cgroup.conf").write_text("# none\n")
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        (folder / "state").mkdir()
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        files = [f"--{what}={folder}/munge.{what.split('-')[0]}" for what in ("key-file", "socket", "pid-file", "log-file", "seed-file")]
        self.daemons = [self.start("munged", "--foreground", *files)]
        self.daemons.append(self.start("slurmctld", "-D"))
        self.nodes = {name: self.start_node(name) for name in ("one", "two")}

    def start_node(self, name):
        """With a /dev/shm of its own, in which ranks would see each other."""
        return self.start("unshare", "-m", "sh", "-c", f"mount -t tmpfs none /dev/shm && exec slurmd -D -N {name}")

    def start(self, *words):
        with open(self.folder / f"{words[0]}.out", "ab") as output:
            return subprocess.Popen(words, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def close(self):
        self.ask("scancel", "--user=root")
        for daemon in [*self.nodes.values(), *self.daemons[::-1]]:
            daemon.terminate()
            daemon.wait()

    def ask(self, *words):
        return subprocess.run(list(map(str, words)), env={**os.environ, **self.environment}, capture_output=True, text=True).stdout

    def job(self):
        return self.ask("squeue", "-h", "-o", "%i").strip()

    def wait_for(self, holds, seconds=30):
        latest = time.monotonic() + seconds
        while not holds() and time.monotonic() < latest:
            time.sleep(0.1)
        return holds()

    def ready(self):
        return self.wait_for(lambda: self.ask("sinfo", "-h", "-o", "%D %t").split() == ["2", "idle"])


class Bench:
    options = ["--steps", 300, "--pause", 20, "--checkpoint-every", 10]  # six seconds

    def __init__(self, options, slurm, folder):
        self.weft, self.program, self.slurm, self.folder = options.weft, options.program, slurm, folder
        self.environment = {**slurm.environment, "WEFT_TIMEOUT": str(deadline)}
        self.count = 0
        self.calm = hash_in(run([self.program, "--ranks", "2", "--out", folder / "calm", *self.options]).output)

    def out(self):
        self.count += 1
        return self.folder / f"run {self.count}"

    def after_steps(self, out, number, action):
        """A disturbance: `action` on the token, once so many steps are made."""
        def disturb(token):
            self.slurm.wait_for(lambda: (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").read_bytes().count(b"\n") >= number)
            action(token)
        return disturb

    def ranks(self, token):
        return [each for each in processes_with(token) if words_of(each)[0] == str(self.program)]


def complaints(outcome, code, says, weights=None):
    if outcome.code != code:
        yield f"the exit code is {outcome.code}, not {code}"
    for each in says:
        if not re.search(each, outcome.output):
            yield f"'{each}' is not said"
    if weights and hash_in(outcome.output) != weights:
        yield f"the hash is {hash_in(outcome.output)}, not {weights}"
    if outcome.orphans:
        yield f"processes are left: {[words_of(each) for each in outcome.orphans]}"


def on_two_nodes(bench):
    command = ["srun", "--mpi=pmi2", "-N", 2, "-n", 2, bench.program, "--out", bench.out(), *bench.options]
    yield from complaints(run(command, bench.environment), 0, ["mpi \\(2 ranks\\)"], bench.calm)


def asked_by_slurm(bench):
    """The signal that `srun --signal` sends before a time limit: the program saves and ends."""
    out = bench.out()
    command = ["srun", "--mpi=pmi2", "-N", 2, "-n", 2, bench.program, "--out", out, *bench.options]
    ask = bench.after_steps(out, 20, lambda _: bench.slurm.ask("scancel", "--signal=USR1", bench.slurm.job()))
    outcome = run(command, bench.environment, ask)
    # A rank that agrees to stop before its own signal comes ends with 143, and srun with the largest code.
    code = 143 if outcome.code == 143 else 128 + signal.SIGUSR1
    yield from complaints(outcome, code, ["the same command goes on from there"])
    yield from complaints(run(command, bench.environment), 0, ["resumed from"], bench.calm)


def supervised(bench, out, *supervisor, launcher="srun --mpi=pmi2 -N 2"):
    return [bench.weft, "launch", "-n", 2, "--launcher", launcher, "--pause", 1, *supervisor, "--", bench.program, "--out", out, *bench.options]


def rank_killed(bench):
    out = bench.out()
    end = bench.after_steps(out, 50, lambda token: [kill(each) for each in bench.ranks(token)[-1:]])
    yield from complaints(run(supervised(bench, out), bench.environment, end), 0, ["137, ended by a signal", "resumed from"], bench.calm)


def to_supervisor(bench, out, number):
    """A disturbance: a signal."""
    return bench.after_steps(out, 20, lambda token: [kill(each, number) for each in processes_with(token)
                                                     if words_of(each)[0] == str(bench.weft)])


def asked_to_save(bench):
    """The job saves, though srun kills its ranks at most signals. After SIGUSR2 it goes on."""
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 75)):
        out = bench.out()
        outcome = run(supervised(bench, out), bench.environment, to_supervisor(bench, out, number))
        yield from complaints(outcome, code, ["stopped after step", "the same command goes on"])
    out = bench.out()
    outcome = run(supervised(bench, out), bench.environment, to_supervisor(bench, out, signal.SIGUSR2))
    yield from complaints(outcome, 0, ["goes on after SIGUSR2", "resumed from"], bench.calm)


def supervisor_killed(bench):
    out = bench.out()
    yield from complaints(run(supervised(bench, out), bench.environment, to_supervisor(bench, out, signal.SIGKILL)), -9, [])
    if not bench.slurm.ready():
        yield "the job goes on"
    yield from complaints(run(supervised(bench, out), bench.environment), 0, ["resumed from"], bench.calm)


def submitted(bench, out):
    """The script of docs/clusters.md, and where its output goes."""
    script = script_of_document(bench.weft, 2, [bench.program, "--out", out, "--fresh", *bench.options])
    for given, wanted in (("--nodes=4", "--nodes=2"), ("ntasks-per-node=16", "ntasks-per-node=1"), ("--ranks-per-node 16", "--ranks-per-node 1")):
        assert given in script
        script = script.replace(given, wanted)
    out.with_suffix(".sh").write_text(script)
    subprocess.run(["sbatch", "--output", out.with_suffix(".txt"), out.with_suffix(".sh")],
                   env={**os.environ, **bench.environment}, check=True, stdout=subprocess.DEVNULL)
    return out.with_suffix(".txt")


def requeued(bench):
    """The script gets the signal that Slurm sends some time before a limit; the job is requeued, and goes on to its end."""
    out, slurm = bench.out(), bench.slurm
    printed = submitted(bench, out)
    bench.after_steps(out, 50, lambda _: slurm.ask("scancel", "--signal=USR1", "--batch", slurm.job()))(None)
    slurm.wait_for(lambda: slurm.ask("squeue", "-h", "-o", "%t").strip() == "PD")
    slurm.ask("scontrol", "update", f"JobId={slurm.job()}", "StartTime=now")  # it would wait for two minutes
    slurm.wait_for(lambda: hash_in(printed.read_text()))
    if not re.search("ends after SIGUSR1[\\s\\S]*resumed from", printed.read_text()) or hash_in(printed.read_text()) != bench.calm:
        yield f"{printed.read_text()}{slurm.ask('squeue')}"


def cancelled(bench):
    """Slurm sends SIGTERM to the ranks, to srun and to the script at the same time."""
    out = bench.out()
    submitted(bench, out)
    bench.after_steps(out, 50, lambda _: bench.slurm.ask("scancel", bench.slurm.job()))(None)
    if not bench.slurm.ready():
        yield f"it goes on: {bench.slurm.ask('squeue')}"
    yield from complaints(run([*supervised(bench, out), "--resume", "auto"], bench.environment), 0, ["resumed from"], bench.calm)


def node_lost(bench):
    """Its daemons and ranks at once. With --no-kill the other node stays, and the job goes on there."""
    out = bench.out()

    def lose(_):
        ranks = processes_with(b"SLURMD_NODENAME=two")
        for each in [bench.slurm.nodes["two"].pid, *map(parent_of, ranks), *ranks]:
            kill(each)
    shrinking = supervised(bench, out, "--shrink", launcher="srun --mpi=pmi2")
    outcome = run(["salloc", "--no-kill", "-N", 2, "-n", 2, *shrinking], bench.environment, bench.after_steps(out, 50, lose), 120)
    yield from complaints(outcome, 0, ["resumed from", "attempt 3 on 1 ranks .* ended at step 300"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("weft", "program"):
        parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--only", nargs="+", default=[""], help="checks whose names begin so")
    options = parser.parse_args()
    if os.geteuid() != 0 or not all(map(shutil.which, ("munged", "slurmctld", "slurmd", "srun"))):
        return 77
    failed = 0
    with tempfile.TemporaryDirectory(prefix="weft_slurm_") as name, contextlib.closing(Slurm(pathlib.Path(name))) as slurm:
        assert slurm.ready(), "Slurm does not start:\n" + "".join(each.read_text() for each in slurm.folder.glob("*.out"))
        bench = Bench(options, slurm, pathlib.Path(name))
        for check in (on_two_nodes, asked_by_slurm, rank_killed, asked_to_save, supervisor_killed, requeued, cancelled, node_lost):
            if not check.__name__.startswith(tuple(options.only)):
                continue
            begin, found = time.monotonic(), 0
            for found, complaint in enumerate(check(bench), 1):
                print(f"        {complaint}", flush=True)
            failed += found > 0
            print(f"{'FAILED' if found else 'ok':6}  {check.__name__:20}  {time.monotonic() - begin:.1f} s", flush=True)
            slurm.ready()
    print(f"{failed} checks failed")
    return 1 if failed else 0


sys.exit(main())
