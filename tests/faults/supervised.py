#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings under `weft launch`: killed at random times, from the start of their processes to their end, they end by
themselves with the weights of an undisturbed one, and leave no process and no file. It gives up where a restart would
be in vain, passes on signals, and goes on with fewer ranks.

    tests/faults/supervised.py WEFT SUMS TRAIN_CONTRASTIVE [--disturb LIBRARY] [--mpiexec NAME] [--kills 12] [--seed N]
                               [--only WORD...] [--nodes 2 4]

SUMS is tests/launch_program. With --nodes the random kills are of processes, and cuts of links, on so many nodes inside
this machine (tests/cluster), as root.
"""
import argparse
import collections
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from job import on_ranks, own_shared_memory, processes_with, run
from supervised_jobs import Bench, Killer, complaints, deadline, hash_in, kill, script_of_document, words_of
from supervised_nodes import nodes


def undisturbed(bench):
    """What it prints is what the program prints, and it has one attempt."""
    for kind in bench.kinds:
        for ranks in (1, 3):
            job = bench.job(kind, ranks)
            outcome = job.run()
            yield from complaints(job, outcome, 0, r"(?m)^report: ", 1, done=True)
            log = job.out.with_name(job.out.name + ".launch.log").read_text()
            if log != outcome.output:
                yield f"the log is not what was printed:\n{log}"


def same_step(bench):
    for kind in bench.kinds:
        job = bench.job(kind, 2, options=["--fault", "kill", "--at", "7"])
        yield from complaints(job, job.run(), 137, (r"rank \d on \S+ ended by signal 9 \(Killed\)\n[\s\S]*" if kind == "processes" else "") +
                              "gives up: 2 attempts in a row have ended at step 7", 2)


def used_up(bench):
    for kind in bench.kinds:
        job = bench.job(kind, 2, options=["--fault", "kill", "--at", "7"], supervisor=["--restarts", "2", "--same-step", "9"])
        yield from complaints(job, job.run(), 137, "gives up: all 2 restarts are used up", 3)


def mistakes(bench):
    for kind in bench.kinds:
        for code, options in ((64, ["--bach", "3"]), (66, ["--resume", "nowhere"]), (88, ["--fault", "nan", "--at", "3"]),
                              (70, ["--fault", "one", "--at", "3"])):
            job = bench.job(kind, 2, options=options)
            yield from complaints(job, job.run(), code, "gives up: a restart would end in the same way", 1)
    job = bench.job("threads", 2, options=["--ranks", "2"])
    yield from complaints(job, job.run(), 64, "give -n in its place", 0)
    job = bench.job("threads", 2)
    job.options[1] = bench.sums / "run"
    yield from complaints(job, job.run(), 74, "launch_program", 0)
    job = bench.job("threads", 2, program="no_such_program")
    yield from complaints(job, job.run(), 66, "no_such_program: there is no such program", 0)


long = ["--steps", "100000", "--pause", "2"]


def goes_on_to(bench, stopped, kind):
    """What is wrong with the same command, with a few more steps."""
    steps = stopped.steps() + 3
    again = bench.job(kind, 2, options=["--steps", str(steps)])
    again.out = stopped.out
    again.options[1] = again.out
    outcome = again.run("--resume", "auto")
    yield from complaints(again, outcome, 0, "resumed from", done=False)
    calm = bench.job(kind, 2, options=["--steps", str(steps)])
    if hash_in(outcome.output) != bench.expected(calm)[0]:
        yield "a stopped job goes on to other weights"


def signals(bench):
    """One that asks to stop is passed on once; the job saves, and the supervisor ends with its code."""
    for kind in bench.kinds:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            job = bench.job(kind, 2, options=long)
            send = job.after_steps(3, lambda token: [kill(each, number) for each in job.supervisors(token)])
            code = 75 if number == signal.SIGUSR1 else 128 + number
            outcome = job.run(disturb=send)
            yield from complaints(job, outcome, code, "stopped after step [0-9,]+ of 100,000; the same command goes on from there", 1)
            if not (job.out / "checkpoints" / f"step-{job.steps():06}.safetensors").exists():
                yield f"{number}: nothing is saved"
            if number in (signal.SIGTERM, signal.SIGUSR1):
                yield from goes_on_to(bench, job, kind)


def save_and_go_on(bench):
    for kind in bench.kinds:
        job = bench.job(kind, 2, options=["--pause", "10"], supervisor=["--restarts", "0"])
        send = job.after_steps(3, lambda token: [kill(each, signal.SIGUSR2) for each in job.supervisors(token)])
        yield from complaints(job, job.run(disturb=send), 0, "goes on after SIGUSR2", 2, done=True)


def asked_while_mpi_starts(bench):
    """MPICH takes SIGUSR1 when it starts, yet the job stops. Without a supervisor; mpiexec may return 1 for 138."""
    if not bench.disturb or not bench.mpiexec:
        return
    out = bench.folder / "early"
    outcome = run(on_ranks(bench.mpiexec, 2, [bench.sums, "--steps", 1000, "--pause", 10, "--out", out]),
                  {"LD_PRELOAD": str(bench.disturb), "DISTURB": "MPI_Comm_rank 1 USR1"})
    if outcome.code not in (138, 1) or "stopped at once by a signal" not in outcome.output:
        yield f"it ends with {outcome.code}: {outcome.output}"


def supervisor_killed(bench):
    """Its job does not go on alone."""
    for kind in bench.kinds:
        job = bench.job(kind, 2, options=long)
        end = job.after_steps(3, lambda token: [kill(each) for each in job.supervisors(token)])
        outcome = job.run(disturb=end)
        yield from complaints(job, outcome, -9)
        steps = job.steps()
        time.sleep(0.2)
        if job.steps() != steps:
            yield "it goes on"


def job_asked(bench):
    """A job that somebody else has stopped is not started again. Ctrl-C does not reach it but through the supervisor."""
    job = bench.job("threads", 2, options=long)
    groups = []

    def stop(token):
        groups.extend(os.getpgid(each) for each in job.ranks_of(token) + job.supervisors(token))
        for each in job.ranks_of(token):
            kill(each, signal.SIGTERM)
    yield from complaints(job, job.run(disturb=job.after_steps(3, stop)), 143, "ends, since the job was asked to stop", 1)
    if len(set(groups)) != 2:
        yield f"the process groups are {groups}"


def fresh_once(bench):
    """--fresh and --resume none are for the first attempt."""
    for option in (["--fresh"], ["--resume", "none"]):
        job = bench.job("threads", 2, options=["--pause", "5", *option])
        kill_rank = job.after_steps(9, lambda token: [kill(each) for each in job.ranks_of(token)])
        yield from complaints(job, job.run(disturb=kill_rank), 0, "resumed from", 2, done=True)
        if job.out.with_name(job.out.name + "-1").exists():
            yield "it has begun anew"


def not_an_earlier_run(bench):
    """A job that is killed before it has begun does not go on with an earlier run in its folder."""
    job = bench.job("threads", 2)
    yield from complaints(job, job.run(), 0, done=True)
    job.options += ["--fault", "before", "--fresh"]  # sleeps
    job.supervisor += ["--restarts", "1"]

    told = []

    def kill_twice(token):
        for _ in range(2):
            time.sleep(0.6)
            for each in job.ranks_of(token):
                told.append(words_of(each))
                kill(each)
    outcome = job.run(disturb=kill_twice)
    yield from complaints(job, outcome, 137, "ended before its first step .*\n.*all 1 restarts are used up")
    if len(told) != 2 or told[0] != told[1]:
        yield f"it goes on with the earlier run: {told}"


def after_the_report(bench):
    """A job that is killed between its report and its end does not begin anew."""
    if not bench.disturb or not bench.mpiexec:
        return
    job = bench.job("processes", 2)
    outcome = job.run(environment={"LD_PRELOAD": str(bench.disturb), "DISTURB": "MPI_Finalize 1 kill"})
    if outcome.code == 0:  # mpiexec has not noticed it, and the report says that all is done
        yield from complaints(job, outcome, 0, done=True)
    else:
        yield from complaints(job, outcome, 137, "all 40 steps were done before", 2, done=True)
    if job.out.with_name(job.out.name + "-1").exists():
        yield "it has begun anew"


def stalled(bench):
    """A job that makes no step for too long is ended, and started again."""
    for kind in bench.kinds[-1:]:
        job = bench.job(kind, 2, options=["--fault", "before"], supervisor=["--stall", "0.01", "--restarts", "1"])
        yield from complaints(job, job.run(limit=40), 143, "made no step for too long", 2)


def shrink(bench):
    """A job whose ranks are lost twice goes on with fewer, with the same weights."""
    for kind in bench.kinds:
        job = bench.training(kind, 3, supervisor=["--shrink"])

        def kill_at_start(token):
            killed, latest = set(), time.monotonic() + 20
            while len(killed) < 2 and time.monotonic() < latest:
                for each in job.launchers(token):
                    if each not in killed and kill(each):
                        killed.add(each)
                time.sleep(0.01)
        outcome = job.run(disturb=kill_at_start)
        yield from complaints(job, outcome, 0, "starts again in 0.05 s, on 2 ranks, since ranks were lost again", 3, done=True)
        if kind == "threads" and "threads (2 ranks)" not in outcome.output:
            yield "there are not two ranks"


def without_codes(bench):
    """A launcher that loses how its ranks have ended returns 0, the code of a rank that has waited, or one of several codes."""
    for lost in (0, 86, 87) if bench.mpiexec else ():
        mpiexec = bench.folder / f"mpiexec_{lost}"
        mpiexec.write_text(f'#!/bin/sh\n{shutil.which(bench.mpiexec)} "$@"\nexit {lost}\n')
        mpiexec.chmod(0o755)
        job = bench.job("processes", 2, options=["--fault", "kill", "--at", "7"], launcher=mpiexec,
                        supervisor=["--shrink", "--restarts", "2", "--same-step", "9"])
        job.options[job.options.index("--checkpoint-every") + 1] = "100"  # a save would count as progress
        yield from complaints(job, job.run(), 137, "on 1 ranks, since ranks were lost again", 3)
        for code, options in ((64, ["--bach", "3"]), (88, ["--fault", "nan", "--at", "3"])):
            job = bench.job("processes", 2, options=options, launcher=mpiexec)
            yield from complaints(job, job.run(), code, "gives up: a restart would end in the same way", 1)
        job = bench.job("processes", 2, launcher=mpiexec)
        yield from complaints(job, job.run(), lost, "gives up" if lost else "ends", done=True)


def shrink_in_place_of_giving_up(bench):
    job = bench.job("threads", 2, options=["--fault", "kill", "--at", "7"], supervisor=["--shrink", "--restarts", "5"])
    outcome = job.run()
    yield from complaints(job, outcome, 137, "on 1 ranks, since ranks were lost again", 4)


def nobody_reads(bench):
    """Output that nobody takes holds nothing up, and is in the log."""
    job = bench.job("threads", 2, options=["--pause", "2"])
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write_end, True)
    supervisor = subprocess.Popen(list(map(str, job.command())), stdin=subprocess.DEVNULL, stdout=write_end, stderr=write_end)
    latest, killed = time.monotonic() + 30, False
    while "; ends" not in job.report() and time.monotonic() < latest:
        time.sleep(0.02)
        if not killed and job.steps() > 5:
            children = pathlib.Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
            killed = bool(children) and kill(int(children[0]))
    if job.attempts() != 2 or "; ends" not in job.report():
        yield f"a full pipe holds it up:\n{job.report()}"
    os.close(write_end)
    os.set_blocking(read_end, False)
    while supervisor.poll() is None and time.monotonic() < latest:
        try:
            os.read(read_end, 1 << 16)
        except BlockingIOError:
            time.sleep(0.01)
    os.close(read_end)
    if supervisor.poll() != 0:
        yield f"exit code {supervisor.poll()}"
        supervisor.kill()
    log = job.out.with_name(job.out.name + ".launch.log").read_text()
    if hash_in(log) != bench.expected(job)[0]:
        yield "the log has no end"


def left_behind(bench):
    """Processes that a launcher has left behind are ended before another attempt."""
    launcher = bench.folder / "leaves_them_behind"
    launcher.write_text('#!/bin/sh\nshift 2\nsetsid "$@" --ranks 2 &\nsleep 0.3\nexit 9\n')
    launcher.chmod(0o755)
    job = bench.job("processes", 2, options=long, launcher=launcher, supervisor=["--restarts", "0"])
    yield from complaints(job, job.run(), 9, "a rank, a node or the launcher was lost", 1)


def by_srun(bench):
    """As a stand-in for srun sees it, which needs no Slurm."""
    if not bench.mpiexec:
        return
    srun = bench.folder / "srun"
    srun.write_text(f"""#!/bin/sh
echo "srun gets $*"
while [ "$1" != -n ]; do shift; done
shift; number=$1; shift 3
exec {shutil.which(bench.mpiexec)} -n "$number" "$@"
""")
    srun.chmod(0o755)
    job = bench.job("processes", 2, options=["--pause", "5"], launcher=f"{srun} --mpi=pmi2")
    kill_launcher = job.after_steps(5, lambda token: [kill(each) for each in job.launchers(token)[:1]])
    yield from complaints(job, job.run(disturb=kill_launcher), 0, "srun gets --mpi=pmi2 -n 2 --kill-on-bad-exit=1 --overlap ", 2, done=True)


def slurm_script(bench):
    """The script of docs/clusters.md, with a stand-in for Slurm: a signal before the time limit leads to a requeue, and
    the requeued job goes on to its end, though it says --fresh."""
    if not bench.mpiexec:
        return
    job = bench.job("processes", 2, options=["--pause", "5", "--fresh"])
    script = script_of_document(bench.weft, 2, [job.program, *job.options])
    tools = bench.folder / "slurm"
    tools.mkdir()
    srun = f"""shift 5
{shutil.which(bench.mpiexec)} -n 2 "$@" & job=$!
trap "kill -TERM $job" USR1  # which it passes on
trap "kill -KILL $job" TERM HUP
wait $job; code=$?
while kill -0 $job; do wait $job; code=$?; done 2>/dev/null
exit $code"""
    for name, text in (("srun", srun), ("scontrol", 'echo "scontrol gets $*"'), ("script", script)):
        (tools / name).write_text(text if name == "script" else f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "71", "WEFT_TIMEOUT": deadline}
    of_script = lambda token: [each for each in processes_with(token) if str(tools / "script") in words_of(each)]
    send = job.after_steps(3, lambda token: [kill(each, signal.SIGUSR1) for each in of_script(token)])
    yield from complaints(job, run([tools / "script"], environment, send), 75, "scontrol gets requeue 71")
    yield from complaints(job, run([tools / "script"], {**environment, "SLURM_RESTART_COUNT": "1"}), 0, "resumed from", done=True)


def random_kills(bench):
    draw, counts, slowest, restart = random.Random(bench.seed), collections.Counter(), 0, 0
    while sum(counts[kind] for kind in Killer.kinds) < bench.kills:
        ranks = draw.choice([1, 2, 3])
        job = bench.training(draw.choice(bench.kinds), ranks, supervisor=["--restarts", "100", "--same-step", "9"])
        killer = Killer(job, draw, 1.2 * bench.expected(job)[1], draw.choice([1, 2, 3, 4]))
        outcome = job.run(disturb=killer, limit=120)
        counts += killer.counts
        counts["trainings"] += 1
        counts["attempts"] += job.attempts()
        counts[f"on {ranks} {job.kind}"] += 1
        slowest, restart = max(slowest, outcome.seconds), max(restart, killer.slowest_restart)
        found = list(complaints(job, outcome, 0, done=True))
        if found:
            yield from [*found, outcome.output]
        elif job.attempts() > 1 + sum(killer.counts.values()):
            yield f"{job.attempts()} attempts after {dict(killer.counts)}:\n{job.report()}"
        shutil.rmtree(job.out, ignore_errors=True)
    print("        " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) +
          f"; the slowest took {slowest:.1f} s, a restart {restart:.1f} s")


def main():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and what it starts inherits that
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("weft", "sums", "contrastive"):
        parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--disturb", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--mpiexec")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--only", nargs="+", default=[""], help="checks whose names begin so")
    parser.add_argument("--nodes", type=int, nargs="+", default=[])
    options = parser.parse_args()
    os.environ["WEFT_CLUSTER"] = f"weft{os.getpid()}"
    alone = not options.nodes and own_shared_memory()
    print(f"seed {options.seed}", flush=True)
    failed, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft_supervised_") as name:
        bench = Bench(options, pathlib.Path(name))
        for check in (nodes,) if options.nodes else (undisturbed, same_step, used_up, mistakes, signals, save_and_go_on,
                      asked_while_mpi_starts, supervisor_killed, job_asked, fresh_once, not_an_earlier_run, after_the_report, stalled, shrink, without_codes, shrink_in_place_of_giving_up, nobody_reads, left_behind, by_srun, slurm_script,
                      random_kills):
            if not check.__name__.startswith(tuple(options.only)):
                continue
            begin = time.monotonic()
            found = 0
            for found, complaint in enumerate(check(bench), 1):
                print(f"        {complaint}", flush=True)
            failed += found > 0
            print(f"{'FAILED' if found else 'ok':6}  {check.__name__:30}  {time.monotonic() - begin:.1f} s", flush=True)
        if alone and bench.mpiexec:
            bench.job("processes", 2).run()  # removes the files of killed jobs
            left = set(pathlib.Path("/dev/shm").glob("weft-*")) - bench.named
            failed += bool(left)
            print(f"left in /dev/shm: {left or 'nothing that no report has named'}")
    print(f"{failed} checks failed, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


sys.exit(main())
