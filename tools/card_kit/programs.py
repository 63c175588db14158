# SPDX-License-Identifier: Apache-2.0
"""The programs of the kit, with the libraries and data that they need."""
import functools
import glob
import os
import pathlib
import subprocess
import sys
import time

kit = pathlib.Path(__file__).resolve().parent


def program(name):
    return kit / "programs" / name


def training(name, *words):
    return [program(name), "--device", "cuda", "--fresh", "--quiet", *words]


@functools.cache
def environment():
    """cuBLAS, cuDNN and NCCL may be those of packages of PyPI, as PyTorch brings them."""
    packages = [folder for place in sys.path for folder in glob.glob(f"{place}/nvidia/*/lib")]
    paths = [kit / "libraries", *filter(None, [os.environ.get("LD_LIBRARY_PATH")]), *packages]
    found = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, paths)), "WEFT_DATA": str(kit / "data"),
             "WEFT_PYTHON": sys.executable, "WEFT_TORCH_STEPS": str(kit / "rivals/torch_steps.py")}
    started = subprocess.run([program("train_contrastive"), "--version"], env=found, capture_output=True, text=True)
    if "libnccl" in started.stderr:  # the loader's error: there is none, so programs get a library that only has its names
        found["LD_LIBRARY_PATH"] += f":{kit / 'no_nccl'}"
    return found


def has_nccl():
    return not environment()["LD_LIBRARY_PATH"].endswith("no_nccl")


def ran(command, seconds, **settings):
    """(state, output, seconds): a test that hangs ends, and says so."""
    begun = time.monotonic()
    try:
        ended = subprocess.run([*map(str, command)], env=environment() | settings, capture_output=True, text=True, errors="replace",
                               timeout=max(seconds, 1))
        state, output = {0: "passed", 77: "skipped"}.get(ended.returncode, f"failed ({ended.returncode})"), ended.stdout + ended.stderr
    except subprocess.TimeoutExpired as late:
        state, output = "failed (no end)", (late.stdout or b"").decode(errors="replace")
    return state, output, time.monotonic() - begun


def last_lines(output):
    return output.strip().splitlines()[-12:]
