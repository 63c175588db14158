#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DDP, JAX's shard_map and the losses of released libraries, dumped by tools/dump and verified: those that are
right, and others that are wrong in ways that were shipped. Uses $WEFT_PYTHON (python3 if unset), and of these what it has;
the exit status is 77, "skipped", if that is nothing.

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
    code = f"import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, {packages})))"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def processes(script, how, environment):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    count = 4 if how.endswith("both") else ranks  # two by two
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    return [subprocess.Popen([python, here / script, *how.split()], env={**environment, "RANK": str(rank)}) for rank in range(count)]


def devices(script, how, environment):
    return [subprocess.Popen([python, here / script, how], env=environment)]


frameworks = {
    "PyTorch": (("torch", "safetensors"), processes, "train_ddp.py",
                {"correct": "correct", "default": "S3", "local": "S1", "own_slot": "S2", "summed": "S8"}),
    "PyTorch, any model": (("torch", "safetensors"), processes, "train_ddp.py",
                           {"correct scale": "correct", "default scale": "S3", "summed scale": "S8", "local scale": "unknown",
                            "own_slot scale": "unknown", "correct fsdp2": "correct", "default fsdp2": "S3",
                            "spread scale": "correct", "scaled scale": "S33", "straight scale": "cannot tell",
                            "straight held": "correct", "default held": "S3", "alone both": "correct", "times both": "S8"}),
    "JAX": (("jax",), devices, "train_shard_map.py", {"correct": "correct", "default": "S3", "local": "S1", "summed": "S8"}),
    "OpenCLIP": (("torch", "safetensors", "open_clip"), processes, "library_loss.py",
                 {"openclip": "S3", "openclip_local": "S1", "openclip_gradient": "correct", "openclip_local_gradient": "correct",
                  "openclip_cached_old": "S19", "openclip_cached": "correct"}),
    "torch.nn": (("torch", "safetensors"), processes, "library_loss.py", {"batch_norm": "S21a", "tied": "correct", "tied_lost": "S32"}),
    "Lightly": (("torch", "safetensors", "lightly", "torchvision"), processes, "library_loss.py",
                {"lightly": "correct", "lightly_old": "S2", "lightly_vicreg": "correct",
                 "lightly_barlow_twins": "correct", "lightly_barlow_twins_old": "S3"}),
    "vector-quantize-pytorch": (("torch", "safetensors", "vector_quantize_pytorch", "einops"), processes, "library_loss.py",
                                {"lookup_free": "S11", "lookup_free_old": "S10", "lookup_free_repaired": "correct"}),
    "TorchMetrics": (("torch", "safetensors", "torchmetrics"), processes, "library_loss.py", {"torchmetrics_rmse": "S3"})}

failures = tried = 0
with tempfile.TemporaryDirectory() as name:
    for framework, (packages, start, script, expected) in frameworks.items():
        if not has(*packages):
            print(f"{python} lacks one of {', '.join(packages)}: {framework} is left out.")
            continue
        for how, verdict in expected.items():
            folder = pathlib.Path(name) / framework / how
            jobs = start(script, how, {**os.environ, "WEFT_DUMP": str(folder), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"})
            if any([job.wait(timeout=600) for job in jobs]):
                sys.exit(f"{framework}, {how}: the training step failed")
            run = subprocess.run([program, "verify", folder], capture_output=True, text=True)
            right = {"correct": run.stdout.endswith("verdict: correct\n"),
                     "cannot tell": run.stdout.endswith("verdict: cannot tell\n"), "unknown": "wrong, unknown cause" in run.stdout}.get(
                verdict, f"wrong: signature {verdict}:" in run.stdout)
            tried += 1
            print(f"{framework}, {how}: {'' if right else 'NOT '}{verdict}")
            if not right:
                failures += 1
                print(run.stdout + run.stderr)
sys.exit(1 if failures else 0 if tried else 77)
