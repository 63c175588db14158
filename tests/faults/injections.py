#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls of the system that touch a run's files or a dump fail once, one after the other, in every way, and the program
is killed in place of each. No call may hang, lose a checkpoint, or lead to other weights or another verdict; what fails
says which file it was.

    tests/faults/injections.py FOLDER --verifier WEFT [--every N]

The programs in FOLDER are launch_program and libdisturb.so (disturb.cpp); --every N tries every N-th case only.
"""
import argparse
import pathlib
import re
import shutil
import sys
import tempfile

from job import run, with_environment

calls = ("open", "read", "pread", "pwrite", "write", "flock", "ftruncate", "fsync", "rename", "mkdir", "unlink")
retried = {"EINTR": {"open", "read", "pread", "pwrite", "write", "flock", "ftruncate", "fsync"},
           "short": {"read", "pread", "pwrite", "write"}}
errors = ("EIO", "ENOSPC", "EDQUOT", "EMFILE", "ENOLCK", "EINTR", "short", "kill")
steps, every = 12, 4


def weights(outcome):
    found = re.search(r"weights ([0-9a-f]{16})", outcome.output)
    return found[1] if outcome.code == 0 and found else None


def steps_saved(out):
    return {int(path.name[5:11]) for path in (out / "checkpoints").glob("step-*.safetensors")}


class Training:
    """A run, or one that goes on from a checkpoint."""

    def __init__(self, folder, scratch, resumes):
        self.name, self.resumes = "resume" if resumes else "train", resumes
        self.program, self.begun, self.scratch = folder / "launch_program", scratch / "begun", scratch
        self.calm = weights(run(self.command(scratch / "calm")))
        number = 1
        while resumes and steps_saved(self.begun) != {every, 2 * every}:  # killed after its second checkpoint
            shutil.rmtree(self.begun, ignore_errors=True)
            run(with_environment({"LD_PRELOAD": folder / "libdisturb.so", "DISTURB": f"rename {number} kill"}, self.command(self.begun)))
            number += 1

    def command(self, out):
        return [self.program, "--quiet", "--ranks", 2, "--steps", steps, "--checkpoint-every", every, "--out", out]

    def prepare(self):
        out = self.scratch / "run"
        shutil.rmtree(self.scratch / "run", ignore_errors=True)
        for aside in self.scratch.glob("run-*"):
            shutil.rmtree(aside)
        if self.resumes:
            shutil.copytree(self.begun, out)
        return self.command(out), out

    def complaints(self, outcome, out, may_fail):
        if outcome.code == 0 and weights(outcome) != self.calm:
            yield "ends in other weights"
        if may_fail and outcome.code not in (0, 74, 66, 65, -9):
            yield f"exit code {outcome.code}"
        if outcome.code in (74, 66, 65) and str(out) not in outcome.output:
            yield "does not name the file"
        saved, reported = steps_saved(out), (out / "report.html").exists()  # then all its steps are done
        again = run(self.command(out))
        if weights(again) != self.calm:
            yield f"goes on to other weights, {again.code}:\n{again.output}"
        if outcome.code != 0 and saved and not reported and list(self.scratch.glob("run-*")):
            yield f"begins anew though steps {sorted(saved)} were saved:\n{again.output}"


class Reading:
    """A verdict on a dump, or its certificate."""

    def __init__(self, verifier, scratch, verb):
        self.name, self.dump = verb, scratch / "dump"
        if not self.dump.exists():
            run([verifier, "run", "info_nce", "--ranks", 2, "-o", self.dump])
        self.certificate = scratch / "dump" / "certificate.json"
        self.words = [verifier, verb, self.dump, *(["-o", self.certificate] if verb == "certify" else ["--json"])]
        self.calm = run(self.words)

    def prepare(self):
        self.certificate.unlink(missing_ok=True)
        return self.words, self.dump

    def complaints(self, outcome, out, may_fail):
        if outcome.code == self.calm.code and self.name == "verify" and said(outcome) != said(self.calm):
            yield "another verdict"
        if may_fail and outcome.code not in (self.calm.code, 65, 66, 74, -9):
            yield f"exit code {outcome.code}"
        if outcome.code in (65, 66, 74) and str(out) not in outcome.output:
            yield "does not name the file"


def said(outcome):
    return outcome.output.replace("disturbed\n", "")


def disturbed(job, library, call, number, error):
    """None if the program makes fewer such calls."""
    command, out = job.prepare()
    plan = f"{call} {number} {error} once" if error != "kill" else f"{call} {number} kill"
    variables = {"LD_PRELOAD": library, "DISTURB": plan, "DISTURB_IN": out}
    outcome = run(with_environment(variables, command), limit=60)
    if "disturbed" not in outcome.output:
        return None
    found = list(job.complaints(outcome, out, error not in retried))
    if outcome.code is None:
        found.append("never ends")
    if error in retried and outcome.code not in (0, getattr(job.calm, "code", 0)):
        found.append(f"exit code {outcome.code} after a call that can be repeated")
    return found and [f"{job.name}, {plan}: {each}\n{outcome.output}" for each in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--verifier", type=pathlib.Path, required=True)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    folder, tried, case, found = options.folder.resolve(), {}, 0, []
    with tempfile.TemporaryDirectory(prefix="weft_injection_") as scratch:
        scratch = pathlib.Path(scratch)
        for job in (Training(folder, scratch, False), Training(folder, scratch, True),
                    Reading(options.verifier.resolve(), scratch, "verify"), Reading(options.verifier.resolve(), scratch, "certify")):
            for call, error in ((call, error) for call in calls for error in errors if call in retried.get(error, calls)):
                for number in range(1, 1000):
                    case += 1
                    if case % options.every:
                        continue
                    outcome = disturbed(job, folder / "libdisturb.so", call, number, error)
                    if outcome is None:
                        break
                    tried[job.name, call] = tried.get((job.name, call), 0) + 1
                    found += outcome
    print("\n".join(found))
    print("; ".join(f"{name} {call} {count}" for (name, call), count in tried.items()))
    print(f"{sum(tried.values())} calls have failed, {len(found)} of them wrongly")
    return 1 if found or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
