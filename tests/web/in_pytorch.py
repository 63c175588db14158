#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the mistakes that the page shows in PyTorch, on three processes, and compares what each rank's row gets back with what Weft
says of the mistake of that name. Exits with 77 without PyTorch.

    tests/web/in_pytorch.py build/tests/exercise_answers
"""
import inspect
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/web"))
try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing

    import mistakes
except ImportError:
    sys.exit(77)

ranks = 3


def all_mistakes():
    return {name.replace("_", " "): function for name, function in vars(mistakes).items() if inspect.isfunction(function)}


class Gather(torch.autograd.Function):
    """With one of the backwards."""

    @staticmethod
    def forward(ctx, x, backward):
        ctx.of_mistake = backward
        return mistakes.nothing(x)

    @staticmethod
    def backward(ctx, g):
        return ctx.of_mistake(g.clone()), None


def gradient(function, rank):
    x = torch.tensor([rank + 1.0], dtype=torch.float64, requires_grad=True)
    rows = function(x) if "x" in inspect.signature(function).parameters else Gather.apply(x, function)
    if rows.requires_grad:
        (rows.sum() * 10**rank).backward()
    return 0.0 if x.grad is None else x.grad.item()


def run(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    mistakes.rank, mistakes.W = rank, ranks
    given = {name: gradient(function, rank) for name, function in all_mistakes().items()}
    pathlib.Path(folder, str(rank)).write_text(json.dumps(given))
    dist.destroy_process_group()


def main():
    requests = [{"ranks": ranks, "mistake": name} for name in all_mistakes()]
    done = subprocess.run([sys.argv[1]], input="\n".join(map(json.dumps, [{}, *requests])) + "\n", capture_output=True, text=True, check=True)
    known, *replies = map(json.loads, done.stdout.splitlines())
    names = [mistake["name"] for mistake in known["mistakes"][1:]]
    complaints = [f"'{name}' is not there in PyTorch" for name in names if name not in all_mistakes()]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(run, args=(folder,), nprocs=ranks)
        given = [json.loads(pathlib.Path(folder, str(rank)).read_text()) for rank in range(ranks)]
    for request, reply in zip(requests, replies):
        name = request["mistake"]
        if "error" in reply:
            complaints.append(f"'{name}': {reply['error']}")
            continue
        wanted = [values[0] for values in reply["cotangents"]]
        got = [each[name] for each in given]
        if any(abs(a - b) > 1e-9 * (1 + abs(b)) for a, b in zip(got, wanted)):
            complaints.append(f"'{name}' gives {got} in PyTorch, and {wanted} in Weft")
    for complaint in complaints:
        print("wrong:", complaint)
    print(f"{len(requests)} mistakes in PyTorch, {len(complaints)} that are not what their name says")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
