#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays the edits of docs/course.md: each is made in a copy of its example, which is built and run. What the course says
of it must be printed.

    tests/documents/course.py BUILD [--only WORD]     (BUILD: with all examples)

An edit is a block of this form; the line with = is printed, and with ! the example also ends with an error.

    ```edit gather_adjoint
    - all_gather(x, comm)
    + all_gather(detach(x), comm)
    ! the gradient is not that of one process
    ```
"""
import argparse
import dataclasses
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from blocks import Document

root = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass
class Edit:
    example: str
    old: str
    new: str
    said: list
    fails: bool

    def source(self):
        """The edited example, or None if the old text is not there once."""
        text = (root / f"examples/{self.example}.cpp").read_text()
        old = r"\s+".join(map(re.escape, self.old.split()))
        return re.sub(old, lambda _: self.new, text) if len(re.findall(old, text)) == 1 else None


def edit_of(example, lines):
    marked = {mark: [line[2:] for line in lines if line.startswith(mark)] for mark in "-+=!"}
    return Edit(example, "\n".join(marked["-"]), "\n".join(marked["+"]), marked["="] + marked["!"], bool(marked["!"]))


def commands(build, example):
    """Those that compile and link an example."""
    printed = subprocess.run(["ninja", "-C", build, "-t", "commands", f"examples/{example}"], capture_output=True,
                             text=True, check=True).stdout.splitlines()
    return shlex.split(next(line for line in printed if f"{example}.p/" in line and " -c " in line)), shlex.split(printed[-1])


def complaint(edit, build, folder):
    text = edit.source()
    if text is None:
        return "the old text is not there once"
    source, made, program = folder / "edited.cpp", folder / "edited.o", folder / "edited"
    source.write_text(text)
    compiling, linking = commands(build, edit.example)
    inputs = {word for word in compiling if word.endswith(".cpp")}
    old = compiling[compiling.index("-o") + 1]
    compiling = [source if word in inputs else made if word == old else word for word in compiling]
    linking = [made if word == old else program if word == f"examples/{edit.example}" else word for word in linking]
    for command in compiling, linking:
        done = subprocess.run(list(map(str, command)), cwd=build, capture_output=True, text=True)
        if done.returncode:
            return done.stderr
    run = subprocess.run([program], capture_output=True, text=True)
    printed = " ".join((run.stdout + run.stderr).split())
    unsaid = [text for text in edit.said if " ".join(text.split()) not in printed]
    if unsaid or (run.returncode != 0) != edit.fails:
        return f"it ends with {run.returncode}, without {unsaid}:\n{run.stdout}{run.stderr}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        for block in Document(root, "docs/course.md").blocks:
            if block.kind != "edit" or options.only not in block.argument:
                continue
            edit = edit_of(block.argument, block.lines)
            said = complaint(edit, options.build, pathlib.Path(folder))
            print(f"{edit.example}: {edit.new}: {said or 'as the course says'}", flush=True)
            found += said is not None
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
