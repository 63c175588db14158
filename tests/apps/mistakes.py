#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes common mistakes with the training programs, with ranks as threads and as processes, and expects one message,
the exit code of docs/faults.md, and an earlier run that is unchanged.

    tests/apps/mistakes.py PROGRAM... [--mpiexec mpiexec.mpich] [--evaluate PROGRAM]
"""
import argparse
import gzip
import json
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import data_mistakes
import model_mistakes
from launchers import code_after_signal
from processes import kill_all, processes_of

images, labels = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
test_labels = "t10k-labels-idx1-ubyte.gz"
samples = 96
min_checkpoint = 20000  # bytes; every program here writes more
failures = runs = 0


def repacked(change):
    return lambda packed: gzip.compress(change(gzip.decompress(packed)))


# Kinds of damage to a file, and the messages about them.
damages = (
    (images, lambda packed: packed[:len(packed) // 2], "the file is truncated"),
    (images, lambda packed: packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:], "incorrect data check"),
    (images, lambda packed: packed[:999] + bytes(9) + packed[1008:], "the gzip stream is corrupt: "),
    (images, repacked(lambda idx: b"PK" + idx[2:]), "not an IDX file"),
    (images, repacked(lambda idx: idx[:-1]), "(96, 28, 28) promises 75264 bytes, but only 75263 follow"),
    (images, repacked(lambda idx: idx + b"\0"), "bytes follow after the 75264"),
    (labels, repacked(lambda idx: struct.pack(">II", 0x801, samples - 1) + idx[8:-1]), "96 labels are needed"),
    (test_labels, repacked(lambda idx: idx[:-1] + b"\x0a"), "label 31 is 10, which is no class from 0 to 9"),
)


goes_on = "the same command goes on from there"


class Programs:
    """The programs, run in one way."""

    def __init__(self, options, ranks, processes, folder):
        self.launcher = [options.mpiexec, "-n", str(ranks)] if processes else []
        self.threads = [] if processes else ["--ranks", str(ranks)]
        self.mpiexec = options.mpiexec if processes else None
        self.folder = folder
        self.kind = f"{ranks} {'processes' if processes else 'threads'}"
        self.data = folder.parent / "data"

    def command(self, program, out, given):
        return [*self.launcher, *self.of_one_process(program, out, given)]

    def of_one_process(self, program, out, given):
        small = {"--steps": 3, "--batch": 32, "--width": 2, "--data": self.data, "--out": self.folder / out, **given}
        words = [str(word) for pair in small.items() for word in pair if word is not None]
        quiet = ["--quiet"] + ["--no-probes"] * (program.name == "train_contrastive")
        return [program, *self.threads, *quiet, *words]

    def run(self, program, out, given, disturb=None):
        """A run that is disturbed, if at all, after a step."""
        return self.run_of(self.command(program, out, given), out, disturb)

    def run_of(self, command, out, disturb=None):
        global runs
        runs += 1
        before = len(steps_of(self.folder / out))
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
        while disturb and job.poll() is None and len(steps_of(self.folder / out)) <= before:
            time.sleep(0.01)
        if disturb:
            disturb(job)
        try:
            said = job.communicate(timeout=60)
        except subprocess.TimeoutExpired:  # visible in its exit code
            job.kill()
            kill_all(self.folder / out)
            said = job.communicate()
        return subprocess.CompletedProcess(job.args, job.returncode, *said)

    def check(self, name, ok, run=None):
        global failures
        if not ok:
            failures += 1
            print(f"FAILED on {self.kind}: {name}")
            if run:
                print(f"  {' '.join(map(str, run.args))}\n  exit code {run.returncode}\n  stdout: {run.stdout}\n"
                      f"  stderr: {run.stderr}")

    def expect(self, code, text, program, out, given, **more):
        """Expects this exit code, and this message once."""
        self.expect_of(self.command(program, out, given), code, text, out, **more)

    def expect_of(self, command, code, text, out="none", **more):
        self.judge(self.run_of(command, out, **more), code, text)

    def judge(self, run, code, text):
        said = run.stdout + run.stderr
        told = code == 0 or text == goes_on or said.count("weft: rank" if "weft: rank" in said else "error: ") == 1
        self.check(f"{code}, {text}", run.returncode == code and said.count(text) == 1 and told, run)
        self.check(f"{text}: what the ranks did is told", "last call" not in said, run)

    def stop(self, program, out, given, disturb, number):
        """Expects a run to end by this signal, and to say how to go on. MPICH's mpiexec returns 0 after one of thirty
        such jobs, though all ranks have returned the signal's code; not three times in a row. Each time the run goes
        on; the result is the number of its sessions."""
        for sessions in range(1, 4 if self.mpiexec else 2):
            run = self.run(program, out, given, disturb)
            if run.returncode != 0:
                break
        self.judge(run, code_after_signal(self.mpiexec, 128 + number), goes_on)
        return sessions


def steps_of(run):
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("\n")]


def moved_from(run):
    """Earlier runs that were moved aside: RUN-2026-11-27-METHOD."""
    return list(run.parent.glob(f"{run.name}-20*"))


def contents(folder):
    # A killed run leaves its lock file, which no process holds.
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*")
            if path.is_file() and path.name != "lock"}


def check_command_lines(way, program):
    """Mistakes that are refused before anything is written."""
    letter = way.folder.parent / "letter"
    for given, code, text in (
        ({"--bach": 32}, 64, "there is no option --bach; did you mean --batch?"),
        ({"--dtype": "f23"}, 64, "did you mean f32?"),
        ({"--batch": 1}, 64, "--batch: 1 is too small, 2 is the least"),
        ({"--seed": None}, 64, "--seed lacks its value"),
        ({"--seed=1": None, "--seed=2": None}, 64, "--seed is given more than once"),
        ({"--out": ""}, 64, "--out: the name of a folder is needed"),
        ({"--zero": 7}, 64, "--zero: 7 is too large, 3 is the most"),
        ({"--same-bits": None, "--zero": 3}, 64, "--same-bits needs whole gradients on every rank, and --zero 3 divides "
                                                 "them; take --zero 0, 1 or 2"),
        ({"--same-bits": None, "--fast-reductions": None}, 64, "--same-bits and --fast-reductions exclude each other"),
        ({"--lr": 11}, 64, "--rate: 11 is too large, 10 is the most"),
        ({"--lr=1": None, "--rate=2": None}, 64, "--rate is given more than once"),
        ({"--batch-size": 3.5}, 64, "--batch"),
        ({"--optimizer": "adamx"}, 64, "among sgd, adam, adamw, lars, lamb, muon, adafactor; did you mean adam?"),
        ({"--weight-decay": -1}, 64, "--weight-decay: -1 is too small, 0 is the least"),
        ({"--momentum": 1}, 64, "--momentum: 1 is too large, 0.9999 is the most"),
        ({"--beta1": 2}, 64, "--beta1: 2 is too large"),
        ({"--beta2": -0.1}, 64, "--beta2: -0.1 is too small"),
        ({"--clip": -1}, 64, "--clip: -1 is too small, 0 is the least"),
        ({"--grad-clip": "much"}, 64, "--clip: 'much' is not a number that fits"),
        ({"--average": 1}, 64, "--average: 1 is too large, 0.999999 is the most"),
        ({"--ema": -0.5}, 64, "--average: -0.5 is too small, 0 is the least"),
        ({"--average": 0.99, "--zero": 3}, 64, "--average needs whole weights on every rank, and --zero 3 divides them"),
        ({"--ema-decay": 0.99}, 64, "there is no option --ema-decay; did you mean --average?"),
        ({"--schedule": "cosin"}, 64, "did you mean cosine?"),
        ({"--warmup": -1}, 64, "--warmup: -1 is too small"),
        ({"--last-rate": 11}, 64, "--last-rate: 11 is too large"),
        ({"--factor": 2}, 64, "--factor: 2 is too large, 1 is the most"),
        ({"--watch-every": -1}, 64, "--watch-every: -1 is too small, 0 is the least"),
        ({"--watch-every": 0.5}, 64, "--watch-every: '0.5' is not a number that fits"),
        ({"--watch": 5}, 64, "there is no option --watch; did you mean --watch-every?"),
        ({"--iters": 9}, 64, "there is no option --iters; did you mean --steps?"),
        ({"--pretrained": "x"}, 64, "there is no option --pretrained; did you mean --init?"),
        ({"--limit": 9}, 64, "there is no option --limit (see --help)"),
        ({"--log": "x"}, 64, "there is no option --log (see --help)"),
        ({"--device": "gpu"}, 64, "did you mean cuda?"),
        ({"--dtype": "float32"}, 64, "did you mean f32?"),
        ({"--workers": 4}, 64, "there is no option --workers; did you mean --ranks?"),
        ({"--recipe": "fashon"}, 64, "among cifar10, fashion, fashion-conv, fashion-quick; did you mean fashion?"),
        ({"--config": "nowhere.toml"}, 66, "nowhere.toml"),
        ({"--data": "nowhere"}, 66, "nowhere: no such file or folder; docs/data.md says what --data may name"),
        ({"--resume": "nowhere"}, 66, "nowhere: there is no such checkpoint"),
        ({"--resume": letter / "text"}, 65, "letter/text: "),
        ({"--out": letter / "text"}, 64, "letter/text: not a folder"),
        ({"--out": letter}, 64, "letter: contains something other than a run"),
        ({"--out": letter / "text" / "run"}, 74, "letter/text is a file"),
        ({"--out": letter / ("long" * 99)}, 74, "File name too long"),
        ({"--out": "/proc/x"}, 74, "/proc/x: cannot be created in /proc: "),
        ({"--trace": "/proc/trace.json"}, 74, "/proc/trace.json: cannot be created: "),
        ({"--record-step": -1}, 64, "--record-step: "),
        ({"--tapes": 3}, 64, "there is no option --tapes; did you mean --record-step?"),
    ):
        way.expect(code, text, program, "none", given)
    way.check("no run is left", not (way.folder / "none").exists())


def check_data(way, program, clip):
    """Data sets that are wrong, and one that is odd but can be trained."""
    sets = data_mistakes.BadSets(way.folder / "sets")
    for given, code, text in data_mistakes.rows(sets):
        way.expect(code, text, program, "none", given)
    for given, code, text in data_mistakes.clip_rows(sets):
        way.expect(code, text, clip, "none", given)
    way.check("no run is left", not (way.folder / "none").exists())
    odd, said = data_mistakes.sound(sets)
    run = way.run(program, "odd", {"--data": odd, "--batch": 16, "--quiet=false": None})
    way.check("an odd set is trained", run.returncode == 0 and all(run.stdout.count(text) == 1 for text in said), run)


def check_damages(way, program):
    for file, damage, text in damages:
        bad = way.folder / "bad data"
        shutil.copytree(way.data, bad, dirs_exist_ok=True)
        (bad / file).write_bytes(damage((way.data / file).read_bytes()))
        way.expect(65, text, program, "none", {"--data": bad})


def check_other_runs(way, program, other):
    """A run that cannot resume leaves the earlier run as it is."""
    resume, out = {"--resume": "auto"}, f"run of {program.name}"
    way.expect(0, "weights ", program, out, {})
    before = contents(way.folder / out)
    model = "step-000003.safetensors is a checkpoint of another model:\n"
    for words, text in (({"--width": 3}, model), ({"--dtype": "f64"}, model),
                        ({"--batch": 16}, "32 at a time, seed 1, not of 96 samples, 16 at a time, seed 1"),
                        ({"--seed": 2}, "32 at a time, seed 1, not of 96 samples, 32 at a time, seed 2")):
        way.expect(65, text, program, out, {**resume, **words, "--steps": 5})
    way.expect(65, model, other, out, {**resume, "--steps": 5})
    way.check(f"{out} is as it was", contents(way.folder / out) == before)
    way.expect(0, "weights ", program, out, {**resume, "--steps": 5, "--zero": 1})
    earlier = {"--resume": way.folder / out / "checkpoints" / "step-000003.safetensors", "--steps": 6}
    way.expect(64, "has gone on to step 5; give another --out to go on from step 3", program, out, earlier)
    way.expect(0, "weights ", program, out + " again", earlier)


def check_full_disk(way, program):
    """Earlier checkpoints are sound, and the run resumes from them when there is room again."""
    out = way.folder / "full"
    csv, report = out / "metrics.csv", out / "report.html"

    def shrink(_):
        for process in processes_of(out):
            resource.prlimit(process, resource.RLIMIT_FSIZE, (min_checkpoint, min_checkpoint))

    def go_on(code, text):
        way.expect(code, text, program, "full", {"--resume": "auto", "--steps": len(steps_of(out)) + 1})

    way.expect(0, "weights ", program, "full", {})
    endless = {"--resume": "auto", "--steps": 1000000, "--checkpoint-every": 3}
    way.expect(74, ".safetensors: cannot be written: File too large", program, "full", endless, disturb=shrink)
    csv.unlink()
    csv.symlink_to(out / "config.toml")
    go_on(74, "metrics.csv: is a link, which is not followed")
    csv.unlink()
    report.unlink()
    report.mkdir()
    go_on(74, "report.html: cannot be put in its place: Is a directory")
    report.rmdir()
    go_on(0, "weights ")
    steps = steps_of(out)
    way.check("no step is lost, nor there twice", len(steps) >= 5 and steps == list(range(1, len(steps) + 1)))


def check_signals(way, program):
    """A run that is asked to stop saves its state and says how to resume."""
    for number in signal.SIGINT, signal.SIGTERM:
        out = way.folder / number.name
        for sessions in 1, 2:  # the same command goes on
            before = len(steps_of(out))
            way.stop(program, out.name, {"--steps": 1000000}, lambda job: job.send_signal(number), number)
            steps = len(steps_of(out))
            way.check(f"{number.name}: a checkpoint", (out / "checkpoints" / f"step-{steps:06}.safetensors").exists())
            report = (out / "report.html").read_text()
            way.check(f"{number.name}: session {sessions} is reported", f"{steps:,} of 1,000,000" in report and steps > before)
        way.check(f"{number.name}: no step is lost, nor there twice", steps_of(out) == list(range(1, steps + 1)))
        way.expect(0, "weights ", program, out.name, {"--resume": "auto", "--steps": steps + 1})
        way.check(f"{number.name}: nothing was moved aside", not moved_from(out))


def check_beginnings(way, program):
    """What the same command does: it goes on with a run that has not ended, and begins anew otherwise."""
    out = way.folder / "again"
    anew = "an earlier run is now in"
    way.expect(66, "again: there is no checkpoint to go on from", program, "again", {"--resume": "auto"})
    way.check("nothing was written", not out.exists())
    way.expect(0, "weights ", program, "again", {})
    (out / "report.html").unlink()  # as if it had been killed before
    checkpoint = (out / "checkpoints" / "step-000003.safetensors").stat().st_mtime_ns
    way.expect(0, "weights ", program, "again", {})
    way.check("its last steps were not repeated",
              (out / "checkpoints" / "step-000003.safetensors").stat().st_mtime_ns == checkpoint)
    way.check("it has a report now", (out / "report.html").exists() and not moved_from(out))
    way.expect(0, "weights ", program, "again", {})
    way.check("a run that has ended is moved aside", len(moved_from(out)) == 1)
    (out / "report.html").unlink()
    way.expect(0, "weights ", program, "again", {"--fresh": None})
    (out / "report.html").unlink()
    way.expect(0, "weights ", program, "again", {"--seed": 2})
    way.check("so are those of other options, and all if asked", len(moved_from(out)) == 3)
    way.expect(64, "--fresh begins anew, and --resume auto does not", program, "again", {"--fresh": None, "--resume": "auto"})


def check_one_folder(way, program):
    """A second run in the folder of the first is refused at once with its owner, and the first continues."""
    out = way.folder / "one"
    held = []

    def start_another(job):
        begun = time.monotonic()
        for more in {}, {"--resume": "auto"}:
            way.expect(64, "one: another run has it, process ", program, "one", {"--seed": 2, **more})
        held.append(time.monotonic() - begun)
        job.send_signal(signal.SIGINT)

    sessions = way.stop(program, "one", {"--steps": 1000000}, start_another, signal.SIGINT)
    way.check("the second is told at once", held and held[0] < 20)
    way.check("the first has its folder", "seed = 1\n" in (out / "config.toml").read_text())
    way.expect(0, "weights ", program, "one", {"--resume": "auto", "--steps": len(steps_of(out)) + 1})
    report = (out / "report.html").read_bytes()
    way.check("the report is of all sessions", f"in {sessions + 1} sessions".encode() in report)
    way.expect(0, "weights ", program, "one", {"--config": out / "config.toml", "--resume": "auto"})
    way.check("a run that was finished keeps its report", (out / "report.html").read_bytes() == report)


def check_lost_folder(way, program):
    """A run whose folder is removed meanwhile says so."""
    way.expect(74, "cannot be written any more: No such file or directory", program, "lost", {"--steps": 1000000},
               disturb=lambda job: shutil.rmtree(way.folder / "lost", ignore_errors=True))


def check_other_data(way, program):
    """Ranks that read different data, for example because nodes have different files, are refused before they train."""
    other = way.folder / "other data"
    shutil.copytree(way.data, other, dirs_exist_ok=True)

    def run():
        process = way.of_one_process(program, "data", {})
        option = process.index("--data")  # else this option would differ
        process[option:option + 2] = []
        of_two, of_one = (["env", f"WEFT_DATA={data}", *process] for data in (str(way.data), str(other)))
        return subprocess.run([way.launcher[0], "-n", "2", *of_two, ":", "-n", "1", *of_one], capture_output=True,
                              text=True, timeout=60)

    same = run()
    way.check("the same data in two places", same.returncode == 0 and "weights " in same.stdout, same)
    (other / labels).write_bytes(repacked(lambda idx: idx[:8] + bytes([(idx[8] + 1) % 10]) + idx[9:])((other / labels).read_bytes()))
    differ = run()
    said = f"ranks 0 and 2 have read different data: 'training labels ({samples}), checksum "
    way.check("data that differ by rank", differ.returncode == 78 and differ.stderr.count(said) == 1 and
              f"from {way.data} and {other}" in differ.stderr and "weights " not in differ.stdout, differ)


def check_few_samples(way, program):
    """No mistakes: numbers of ranks that do not divide the batch, or exceed its samples."""
    for batch in 31, 2:
        way.expect(0, "weights ", program, f"batch {batch} of {program.name}", {"--batch": batch})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, nargs="+")
    parser.add_argument("--mpiexec")
    parser.add_argument("--evaluate", type=pathlib.Path)
    options = parser.parse_args()
    begun = time.monotonic()
    programs = options.programs
    named = {program.name: program for program in programs}
    with tempfile.TemporaryDirectory(prefix="weft_mistakes_") as name:
        folder = pathlib.Path(name)
        (folder / "letter").mkdir()
        (folder / "letter" / "text").write_text("Dear reader")
        make = pathlib.Path(__file__).resolve().with_name("small_data.py")
        subprocess.run([sys.executable, make, folder / "data", "--train", str(samples), "--test", "32"], check=True)
        for i, (ranks, processes) in enumerate([(1, False), (3, False)] + [(3, True)] * bool(options.mpiexec)):
            (folder / f"way {i}").mkdir()
            way = Programs(options, ranks, processes, folder / f"way {i}")
            first = programs[i % len(programs)]
            model_mistakes.check_collapse(way, named["train_contrastive"])
            check_data(way, named["train_vqgan_weight"], named["train_clip"])
            for check in (check_damages, check_command_lines, check_signals, check_beginnings, check_full_disk, check_one_folder,
                          check_lost_folder):
                check(way, first)
            model_mistakes.check_encoder_files(way, named["train_clip" if i == 1 else "train_contrastive"])
            model_mistakes.check_vq_beginnings(way, named["train_vqgan_weight" if i == 1 else "train_vq"], named["train_contrastive"])
            model_mistakes.check_evaluate(way, options.evaluate)
            model_mistakes.check_views(way, named["train_contrastive"])
            for program, other in zip(programs, programs[1:] + programs[:1]):
                check_other_runs(way, program, other)
                check_few_samples(way, program)
                if processes:
                    check_other_data(way, program)
    print(f"{runs} runs in {time.monotonic() - begun:.0f} s, {failures} not as they should be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
