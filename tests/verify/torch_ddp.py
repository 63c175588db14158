#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DDP, dumped by tools/dump and verified: a training step that is right, and four that are wrong in ways that
were shipped. Uses $WEFT_PYTHON (python3 if unset); the exit status is 77, "skipped", if that lacks a package.

    tests/verify/torch_ddp.py PROGRAM
"""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

program, ranks = sys.argv[1], 3
python = os.environ.get("WEFT_PYTHON", "python3")
script = pathlib.Path(__file__).with_name("train_ddp.py")
expected = {"correct": "correct", "default": "S3", "local": "S1", "own_slot": "S2", "summed": "S8"}

if subprocess.run([python, "-c", "import torch, safetensors"], capture_output=True).returncode:
    print(f"{python} lacks a package: pip install torch safetensors, and name that Python in WEFT_PYTHON.")
    sys.exit(77)


def dump(how, folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "WEFT_DUMP": str(folder), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                   "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    jobs = [subprocess.Popen([python, script, how], env={**environment, "RANK": str(rank)}) for rank in range(ranks)]
    if any(job.wait(timeout=120) for job in jobs):
        sys.exit(f"{how}: the training step failed")


failures = 0
with tempfile.TemporaryDirectory() as name:
    for how, verdict in expected.items():
        folder = pathlib.Path(name) / how
        dump(how, folder)
        run = subprocess.run([program, "verify", folder], capture_output=True, text=True)
        right = run.stdout.endswith("verdict: correct\n") if verdict == "correct" else f"wrong: signature {verdict}:" in run.stdout
        print(f"{how}: {'' if right else 'NOT '}{verdict}")
        if not right:
            failures += 1
            print(run.stdout + run.stderr)
sys.exit(1 if failures else 0)
