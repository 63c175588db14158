#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts a small training program in every way there is, disturbs it, and checks what its user gets: the exit code, one
message, and a run that resumes as if nothing had happened.

    tests/apps/launch.py PROGRAM [--mpiexec mpiexec.mpich]

PROGRAM is tests/launch_program. The environment is passed on to mpiexec (see tests/meson.build).
"""
import argparse
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time

import launchers

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("--mpiexec")
arguments = parser.parse_args()
failures = 0
named_logs = set()  # in reports of expected failures


def command_of(*words, ranks=1, processes=False, out=None):
    """A command for one run, as threads or as processes."""
    command = [arguments.program, *words] + (["--out", str(out)] if out else [])
    if processes:
        command = [arguments.mpiexec, "-n", str(ranks), *command]
    else:
        command += ["--ranks", str(ranks)]
    return command


def with_logs(run):
    named_logs.update(re.findall(r"the last calls of all ranks are in (\S+)", run.stdout + run.stderr))
    return run


def start(*words, **way):
    return with_logs(subprocess.run(command_of(*words, **way), capture_output=True, text=True, timeout=60))


def start_and_signal(*words, signals, after, pause=0.5, **way):
    """A run that gets signals, with a pause before each, as soon as it has printed something."""
    job = subprocess.Popen(command_of(*words, **way), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    while after not in said:
        said += job.stdout.readline() or sys.exit(f"FAILED: {words} ends before it says '{after}': {said}")
    for each in signals:
        time.sleep(pause)
        job.send_signal(each)
    begin = time.monotonic()
    said += job.communicate(timeout=60)[0]
    took = f"after {time.monotonic() - begin:.1f} s"
    return with_logs(subprocess.CompletedProcess(job.args, job.returncode, said, took))


def check(name, ok, run=None):
    global failures
    if not ok:
        failures += 1
        print(f"FAILED: {name}")
        if run:
            print(f"  exit code {run.returncode}\n  stdout: {run.stdout}\n  stderr: {run.stderr}")


def rows(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def weights(run):
    found = re.search(r"weights ([0-9a-f]{16})", run.stdout + run.stderr)
    return found[1] if found else None


def said_once(run, text):
    return (run.stdout + run.stderr).count(text) == 1


def check_runs(folder):
    """Threads, processes and numbers of ranks give the same losses; threads and processes also the same bits."""
    curves, hashes = {}, {}
    for ranks in (1, 2, 3, 4):
        for processes in (False, True) if arguments.mpiexec else (False,):
            out = folder / f"run-{ranks}-{processes}"
            run = start("--dtype", "f64", ranks=ranks, processes=processes, out=out)
            check(f"{ranks} ranks end well", run.returncode == 0 and weights(run), run)
            curves[ranks, processes] = [row["loss"] for row in rows(out)]
            hashes[ranks, processes] = weights(run)
            report = (out / "report.html").read_text()
            check(f"{ranks} ranks are in the report", report.count(">rank ") == ranks and weights(run) in report, run)
    for (ranks, processes), curve in curves.items():
        check(f"the losses of {ranks} ranks", len(curve) == 40 and curve[-1] < curve[0] / 4 and
              all(abs(a - b) < 1e-10 for a, b in zip(curve, curves[1, False])))
        check(f"the bits of {ranks} ranks", hashes[ranks, processes] == hashes[ranks, False])
    for stage in "1", "2":
        run = start("--dtype", "f64", "--zero", stage, ranks=3, out=folder / f"zero-{stage}")
        check(f"the bits at stage {stage}", weights(run) == hashes[3, False], run)
    run = start("--dtype", "f64", "--seed", "2", ranks=3, out=folder / "seed")
    check("other weights have another hash", weights(run) != hashes[3, False], run)


def check_resuming(folder, ranks, processes):
    """A run that is killed or stopped and then resumed ends like an undisturbed one."""
    kind = f"{ranks} {'processes' if processes else 'threads'}"
    way = dict(ranks=ranks, processes=processes)
    whole = start(out=folder / f"whole-{kind}", **way)
    for fault, saving, every in ("kill", "every", "10"), ("stop", "every", "10"), ("kill", "minutes", "1e-5"):
        out = folder / f"{fault}-{saving}-{kind}"
        pause = ("--pause", "20") if saving == "minutes" else ()  # a checkpoint is written when the ranks leave a core idle
        run = start("--fault", fault, "--at", "27", f"--checkpoint-{saving}", every, *pause, out=out, **way)
        if fault == "stop":
            stopped = launchers.code_after_signal(arguments.mpiexec if processes else None, 143)
            check(f"a stopped run of {kind} has the code of its signal", run.returncode == stopped, run)
            check(f"a stopped run of {kind} says how to go on", said_once(run, "the same command goes on from there"), run)
            check(f"a stopped run of {kind} has a report", "28 of 40" in (out / "report.html").read_text(), run)
            check(f"a stopped run of {kind} has done a step more", len(rows(out)) == 28, run)
        else:
            # MPICH 4.2's mpiexec sometimes returns 0 for a job that was killed; it has no weights then.
            ended_well = run.returncode == 0 and (not processes or weights(run) is not None)
            check(f"a killed run of {kind} does not end well", not ended_well, run)
            rarer = "so the next ones come every" in run.stdout + run.stderr
            check(f"checkpoints by {saving} are made rarer if they take long", rarer == (saving == "minutes"), run)
        run = start("--resume", "auto", out=out, **way)
        check(f"{kind}, {fault}: goes on from a checkpoint", "resumed from " in run.stdout, run)
        check(f"{kind}, {fault}: the same weights", run.returncode == 0 and weights(run) == weights(whole) is not None, run)
        check(f"{kind}, {fault}: nothing is there twice", [row["step"] for row in rows(out)] == list(range(1, 41)), run)
        losses = [row["loss"] for row in rows(out)]
        check(f"{kind}, {fault}: the same losses", losses == [row["loss"] for row in rows(folder / f"whole-{kind}")])


def check_mistakes(folder, ranks, processes):
    """A failure gives one message and the right exit code. tests/apps/mistakes.py has the mistakes of users."""
    way = dict(ranks=ranks, processes=processes)
    for words, code, text in (
        (["--fault", "missing", "--at", "3"], 66, "apt-get install data"),
        (["--fault", "missing_on_one", "--at", "3"], 66, "data are missing on one rank"),
        (["--fault", "one", "--at", "3"], 70, "one rank has had enough"),
        (["--fault", "data", "--at", "3"], 66, "one rank's data are gone"),
        (["--fault", "nan", "--at", "3"], 88, "step 4: loss is nan"),
        (["--fault", "memory", "--at", "3"], 89, "the system has no"),
        (["--help"], 0, "Usage: sums"),
    ):
        run = start(*words, out=folder / "mistakes", **way)
        check(f"{ranks} ranks, {words}: {code}, {text}", run.returncode == code and said_once(run, text), run)


def check_signals(folder, ranks, processes):
    """The first signal asks a training to stop and ends other programs; the second ends both."""
    way, kind = dict(ranks=ranks, processes=processes), f"{ranks} {'processes' if processes else 'threads'}"
    interrupt, hang_up = signal.SIGINT, signal.SIGHUP
    interrupted = launchers.code_after_signal(arguments.mpiexec if processes else None, 130)
    signal.signal(hang_up, signal.SIG_DFL)  # ignored under nohup, and inherited by the programs started here
    before = start_and_signal("--fault", "before", signals=[interrupt], after="probes before", out=folder / f"before-{kind}", **way)
    check(f"{kind} are interrupted before training", before.returncode == interrupted and said_once(before, "stopped at once"), before)
    out = folder / f"after-{kind}"
    after = start_and_signal("--fault", "after", signals=[interrupt], after="probes after", out=out, **way)
    check(f"{kind} are interrupted after training", after.returncode == interrupted and said_once(after, "stopped at once"), after)
    check(f"{kind} have saved what they trained", len(list((out / "checkpoints").glob("*40*"))) > 0, after)
    if processes:  # mpiexec handles these itself
        return
    slow = ["--pause", "1000", "--steps", "1000"]
    again = start_and_signal(*slow, signals=[interrupt] * 2, after="step 1/", out=folder / f"twice-{kind}", **way)
    check(f"{kind} are interrupted twice", again.returncode == 130 and said_once(again, "stopped at once"), again)
    once = start_and_signal(*slow, signals=[interrupt] * 3, after="step 1/", pause=0.05, out=folder / f"once-{kind}", **way)
    check(f"{kind}: signals that come at once are one", once.returncode == 130 and said_once(once, "the same command goes on from there"), once)
    out = folder / f"hang-{kind}"
    gone = start_and_signal("--pause", "100", "--steps", "1000", signals=[hang_up], after="step 1/", out=out, **way)
    signal.signal(hang_up, signal.SIG_IGN)
    nohup = start_and_signal("--pause", "100", "--steps", "20", signals=[hang_up], after="step 1/",
                             out=folder / f"nohup-{kind}", **way)
    signal.signal(hang_up, signal.SIG_DFL)
    check(f"{kind} under nohup do not", nohup.returncode == 0 and "stopped" not in nohup.stdout, nohup)
    stopped = gone.returncode == 129 and said_once(gone, "the same command goes on from there")
    check(f"{kind} stop when their terminal does", stopped, gone)


def check_environment(folder):
    """A wrong variable ends a run before it has a folder."""
    wrong = [("WEFT_TIMEOUT", value, "WEFT_TIMEOUT: '{}' is not") for value in ("abc", "inf", "1e16", "-1", "0")]
    wrong += [("WEFT_RANKS", value, "WEFT_RANKS: '{}' is not") for value in ("two", "0", "-1", "1.5", "99999999999")]
    wrong += [("WEFT_TRANSPORT", "pigeon", "WEFT_TRANSPORT={}: there are self,")]
    for variable, value, text in wrong:
        out = folder / "environment"
        run = subprocess.run(command_of(out=out), capture_output=True, text=True, timeout=60,
                             env=dict(os.environ, **{variable: value}))
        refused = run.returncode == 64 and said_once(run, text.format(value)) and not out.exists()
        check(f"{variable}={value}", refused, run)


def check_words(folder):
    """The output of a run."""
    quiet = start("--quiet", out=folder / "quiet")
    check("a quiet run prints one line", (quiet.stdout + quiet.stderr).count("\n") == 1 and weights(quiet), quiet)
    objects = start("--json", ranks=2, out=folder / "json")
    lines = [json.loads(line) for line in objects.stdout.splitlines()]
    check("a run prints JSON", lines[-1]["event"] == "finished" and not objects.stderr, objects)
    figures = lines[-1]["figures"]
    check("its last line has numbers", isinstance(figures["loss of the last step"], float) and figures["training time"] > 0 and
          re.fullmatch("[0-9a-f]{16}", figures["hash of the weights"]), objects)
    dry = start("--dry-run", ranks=2, out=folder / "dry")
    check("a dry run tells traffic", dry.returncode == 0 and "all_reduce: " in dry.stdout and "calls" in dry.stdout, dry)
    # Mlp of 5, 16 and 1: 113 weights. AdamW has two more values for each, and four tensors their numbers of steps.
    check("a dry run counts weights and the values of a checkpoint",
          "\n113 weights\n" in dry.stdout and "\n343 values in a checkpoint, " in dry.stdout, dry)
    check("a dry run leaves nothing", not (folder / "dry").exists())
    again = start("--config", folder / "json" / "config.toml", "--out", folder / "again")
    check("a run's configuration can be used again", again.returncode == 0 and '"event":"finished"' in again.stdout, again)
    check("an earlier run is kept", start(out=folder / "quiet").returncode == 0 and any(folder.glob("quiet-2*")))
    elsewhere = start("--resume", folder / "json", out=folder / "elsewhere")
    check("a run whose steps were all done elsewhere tells no loss, time or speed of them", weights(elsewhere) and
          not re.search("nan|loss of the last step|speed|training time", elsewhere.stdout), elsewhere)


def all_of(terminal):
    """What a terminal that nobody writes to any more still holds. One read gives a part of it, as the kernel likes."""
    said = b""
    while True:
        try:
            said += os.read(terminal, 1 << 16)
        except OSError:  # EIO: that was all
            return said


def check_streams(folder):
    """Nothing that a terminal or a pipe does stops a run or gets into its files."""
    out = folder / "stopped terminal"
    user, program = pty.openpty()
    job = subprocess.Popen(command_of("--timeout", "5", "--pause", "10", ranks=2, out=out), stdin=program, stdout=program, stderr=program)
    os.read(user, 1)  # it has begun
    os.write(user, b"\x13")  # Ctrl-S
    deadline = time.monotonic() + 30
    while not (out / "report.html").exists() and time.monotonic() < deadline and job.poll() is None:
        time.sleep(0.05)
    check("a run ends behind a terminal that Ctrl-S has stopped", (out / "report.html").exists())
    time.sleep(5.5)  # the other rank does not wait for the terminal, either
    os.write(user, b"\x11")
    code = job.wait(timeout=30)
    os.close(program)
    said = all_of(user)
    check(f"a terminal gets the last line after Ctrl-Q: {code} {said}", code == 0 and b"hash of the weights" in said)
    os.close(user)

    reading, writing = os.pipe()
    os.write(writing, b"x" * fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096))
    out = folder / "full pipe"
    job = subprocess.Popen(command_of("--timeout", "5", ranks=2, out=out), stdout=writing, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (out / "report.html").exists() and time.monotonic() < deadline and job.poll() is None:
        time.sleep(0.05)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    check(f"a run ends behind a full pipe: {job.communicate()[1]}", job.wait(timeout=30) == 0 and "hash of the weights" in said)

    for closed in "<&- >&-", ">&-", "<&- >&- 2>&-":
        out = folder / f"closed {closed}"
        run = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *map(str, command_of(ranks=2, out=out))], capture_output=True, text=True, timeout=60)
        check(f"nothing is printed into files: {closed}", run.returncode == 0 and [row["step"] for row in rows(out)] == list(range(1, 41)), run)
    for pipe, code in ("metrics.jsonl", 74), ("sessions.json", 0), ("config.toml", 0):  # which nobody writes or reads
        out = folder / f"pipe {pipe}"
        start(ranks=2, out=out)
        (out / pipe).unlink()
        os.mkfifo(out / pipe)
        run = start("--resume", "auto", "--steps", "41", ranks=2, out=out)
        check(f"a pipe in place of {pipe} is not waited for", run.returncode == code, run)
    for json_too in [], ["--json"]:
        with open("/dev/full", "w") as full:
            run = subprocess.run(command_of(*json_too, ranks=2, out=folder / "full device"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        check("what could not be printed is told", run.returncode == 74 and "standard output: No space left" in run.stderr, run)


def check_numbers_of_ranks(folder):
    few = start(ranks=13, out=folder / "few")
    check("more ranks than samples", few.returncode == 64 and "too small" in few.stderr, few)
    if arguments.mpiexec:
        run = start("--ranks", "3", ranks=2, processes=True, out=folder / "threads of two processes")
        check("--ranks in a job of two processes", run.returncode == 0 and "(6 ranks)" in run.stdout, run)
        hidden = launchers.hides_crashes(arguments.mpiexec)
        for fault, crashed in (("crash", "rank 5"), ("crash_of_no_rank", "process 1")):
            run = start("--ranks", "3", "--fault", fault, ranks=2, processes=True, out=folder / fault)
            ended = (run.returncode or hidden) and said_once(run, f"weft: {crashed} has crashed: signal 11")
            check(f"{fault} in two processes", ended, run)
        mine = [arguments.program, "--out", folder / "different threads", "--ranks"]
        run = subprocess.run([arguments.mpiexec, "-n", "1", *mine, "2", ":", "-n", "1", *mine, "3"], capture_output=True,
                             text=True, timeout=60)
        check("processes with different --ranks", run.returncode == 78 and said_once(run, "'ranks = 2' and 'ranks = 3'"), run)
        run = start("--ranks", "3", ranks=1, processes=True, out=folder / "threads of one process")
        check("--ranks in a job of one process", run.returncode == 0 and "(3 ranks)" in run.stdout, run)
        run = start(ranks=1, processes=True, out=folder / "one process")
        check("a job of one process", run.returncode == 0 and "(1 rank" in run.stdout, run)
        command = [arguments.mpiexec, "-n", "1", arguments.program, ":", "-n", "1", arguments.program, "--seed", "2"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60)
        check("ranks with different options", run.returncode == 78 and said_once(run, "'seed = 1' and 'seed = 2'"), run)


def check_launchers(folder):
    """A launcher by which processes cannot find each other is refused, on each of them."""
    out = folder / "launchers"
    library = re.search(r"MPICH|Open MPI|no MPI", start("--dry-run").stdout)[0]
    for launcher in launchers.unsuitable[library]:
        tasks = launchers.tasks_on([2, 1])
        jobs = [subprocess.Popen(command_of(out=out), env=launchers.environment_of(launcher, task), stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for task in tasks]
        ended = [subprocess.CompletedProcess(job.args, job.wait(timeout=60), *job.communicate()) for job in jobs]
        complaint = launchers.refusal_complaint(ended, library, len(tasks))
        left = [file for job in jobs for file in pathlib.Path("/dev/shm").glob(f"weft-{job.pid}-*")]
        check(f"{launcher.__name__} is refused: {complaint}, left {left}", not complaint and not left and not out.exists())
    if arguments.mpiexec:
        run = subprocess.run([arguments.mpiexec, "-n", "3", *launchers.suitable_srun, arguments.program, "--out", out],
                             capture_output=True, text=True, timeout=60)
        check("a suitable srun", run.returncode == 0 and "(3 ranks)" in run.stdout and weights(run), run)


with tempfile.TemporaryDirectory(prefix="weft_launch_") as name:
    folder = pathlib.Path(name)
    check_runs(folder)
    for ranks, processes in (1, False), (3, False), (2, True):
        if processes and not arguments.mpiexec:
            continue
        check_resuming(folder, ranks, processes)
        check_mistakes(folder, ranks, processes)
        check_signals(folder, ranks, processes)
    check_environment(folder)
    check_launchers(folder)
    check_words(folder)
    check_streams(folder)
    check_numbers_of_ranks(folder)
for log in named_logs:
    check(f"{log} was kept", pathlib.Path(log).exists())
    pathlib.Path(log).unlink(missing_ok=True)
sys.exit(1 if failures else 0)
