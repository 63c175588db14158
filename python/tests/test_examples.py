# SPDX-License-Identifier: Apache-2.0
"""The examples of the engine: each prints what it shows, and checks it itself."""
import pathlib
import re
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
    assert len(examples) >= 9


def test_the_example_of_the_page(capfd):
    page = (pathlib.Path(__file__).parents[2] / "docs/python.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "run_ranks" in block]
    exec(code, {})
    expected = re.search(r"run_ranks.*# (\[.*\])", code)[1]
    assert capfd.readouterr().out.splitlines()[-1] == expected
