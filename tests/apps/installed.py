#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs a build into a scratch folder, and trains and evaluates with the programs there.

    tests/apps/installed.py BUILD MESON...
"""
import pathlib
import subprocess
import sys
import tempfile


def ended(*command):
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
    return run.stdout


def main():
    build, *meson = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="weft_installed_") as name:
        folder = pathlib.Path(name)
        ended(*meson, "install", "-C", build, "--no-rebuild", "--destdir", folder / "system")
        [programs] = {file.parent for file in (folder / "system").rglob("evaluate")}
        make = pathlib.Path(__file__).resolve().with_name("small_data.py")
        ended(sys.executable, make, folder / "data", "--train", 96, "--test", 32)
        small = ["--data", folder / "data", "--ranks", 2, "--quiet"]
        ended(programs / "train_contrastive", *small, "--steps", 3, "--batch", 32, "--width", 2, "--out", folder / "run", "--export", folder / "encoder")
        said = ended(programs / "evaluate", *small, "--model", folder / "encoder", "--labels-per-class", 2)
        print(said, end="")
        missing = [program for program in ("train_clip", "train_vq", "train_vqgan_weight") if "Usage" not in ended(programs / program, "--help")]
        return 1 if missing or "linear probe" not in said else 0


if __name__ == "__main__":
    sys.exit(main())
