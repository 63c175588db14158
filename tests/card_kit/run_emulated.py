#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs those parts of the card kit that compare weights, on two emulated cards, with small networks and few pictures: they
have to pass.

    tests/card_kit/run_emulated.py build-emulated-card/apps/train_contrastive build-emulated-card/apps/train_clip
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

top = pathlib.Path(__file__).resolve().parents[2]
small = {"train_contrastive": "--batch 6 --width 2 --no-probes", "train_clip": "--batch 6 --width 2"}

with tempfile.TemporaryDirectory() as name:
    kit = pathlib.Path(name, "card_kit")
    shutil.copytree(top / "tools/card_kit", kit)
    (kit / "version").write_text("emulated\n")
    (kit / "programs").mkdir()
    for path in map(pathlib.Path, sys.argv[1:]):
        program = kit / "programs" / path.name
        program.write_text(f'#!/bin/sh\nexec {path.resolve()} "$@" {small[path.name]}\n')
        program.chmod(0o755)
    subprocess.run([sys.executable, top / "tests/apps/small_data.py", kit / "data", "--train", "24", "--test", "20"], check=True)
    sys.exit(subprocess.run([kit / "run", "--cards", "2", "bits", "zero"], cwd=name).returncode)
