#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that tests of the suite "host" use no part that a build may lack: a card, NCCL or MPI. A file may do so if it,
or a header of tests/ that it includes, names one. Prints these files with what they name.

    tests/support/host_files.py FILE...
"""
import functools
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent.parent
optional_part = re.compile(r"Device::cuda|\bavailable\(|\btake_card\b|\w*nccl\w*|\b(?:mpi|MPI)_\w+|tests/emulated_card")
include_line = re.compile(r'#include "(tests/[^"]+)"')


@functools.cache
def named(path):
    """The first optional part that a file names outside of comments, or a header that it includes."""
    text = re.sub(r"//.*", "", path.read_text())
    if found := optional_part.search(text):
        return found[0]
    return next(filter(None, (named(root / name) for name in include_line.findall(text))), None)


files = [pathlib.Path(name).resolve() for name in sys.argv[1:]]
found = {file: part for file in files if (part := named(file))}
for file, part in found.items():
    print(f"{file.relative_to(root)}: {part} is an optional part, so this file is not one of the suite host: see on_any_part in tests/meson.build")
print(f"{len(files)} files of the suite host, {len(found)} that use optional parts")
sys.exit(1 if found or not files else 0)
