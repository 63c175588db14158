#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DDP and JAX's shard_map, dumped by tools/dump and verified: training steps that are right, and others that are
wrong in ways that were shipped. Uses $WEFT_PYTHON (python3 if unset); the exit status is 77, "skipped", if that has neither.

    tests/verify/frameworks.py PROGRAM
"""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

program, ranks = sys.argv[1], 3
python = os.environ.get("WEFT_PYTHON", "python3")
here = pathlib.Path(__file__).parent


def has(*packages):
    return subprocess.run([python, "-c", "import " + ", ".join(packages)], capture_output=True).returncode == 0


def ddp(how, environment):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    return [subprocess.Popen([python, here / "train_ddp.py", how], env={**environment, "RANK": str(rank)})
            for rank in range(ranks)]


def shard_map(how, environment):
    return [subprocess.Popen([python, here / "train_shard_map.py", how], env=environment)]


frameworks = {
    "PyTorch": (("torch", "safetensors"), ddp,
                {"correct": "correct", "default": "S3", "local": "S1", "own_slot": "S2", "summed": "S8"}),
    "JAX": (("jax",), shard_map, {"correct": "correct", "default": "S3", "local": "S1", "summed": "S8"})}

failures = tried = 0
with tempfile.TemporaryDirectory() as name:
    for framework, (packages, start, expected) in frameworks.items():
        if not has(*packages):
            print(f"{python} lacks {framework}: pip install {' '.join(packages)}, and name that Python in WEFT_PYTHON.")
            continue
        for how, verdict in expected.items():
            folder = pathlib.Path(name) / framework / how
            jobs = start(how, {**os.environ, "WEFT_DUMP": str(folder), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"})
            if any([job.wait(timeout=120) for job in jobs]):
                sys.exit(f"{framework}, {how}: the training step failed")
            run = subprocess.run([program, "verify", folder], capture_output=True, text=True)
            right = (run.stdout.endswith("verdict: correct\n") if verdict == "correct" else
                     f"wrong: signature {verdict}:" in run.stdout)
            tried += 1
            print(f"{framework}, {how}: {'' if right else 'NOT '}{verdict}")
            if not right:
                failures += 1
                print(run.stdout + run.stderr)
sys.exit(1 if failures else 0 if tried else 77)
