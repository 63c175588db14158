# SPDX-License-Identifier: Apache-2.0
"""The examples of the engine: each prints what it shows, and checks it itself."""
import pathlib
import subprocess
import sys

import pytest

examples = sorted(pathlib.Path(__file__).parents[2].glob("examples/python/*.py"))


@pytest.mark.parametrize("example", examples, ids=lambda path: path.stem)
def test_examples(example):
    ran = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    assert len(ran.stdout.splitlines()) > 1 and len(example.read_text().splitlines()) <= 30


def test_there_are_examples():
    assert len(examples) >= 8
