# SPDX-License-Identifier: Apache-2.0
"""Runs a library's losses on three processes that each have a part of the batch, and on one with the whole batch."""
import importlib.metadata
import multiprocessing
import os
import random
import tempfile
import traceback
from dataclasses import dataclass, field
from typing import Callable

import torch
import torch.distributed as dist

RANKS = 3


@dataclass
class Case:
    """call(rows, shared, given) returns a loss, or a loss and a dictionary of tensors: its state afterwards."""
    loss: str  # as in loss_table
    mode: str  # of the library
    call: Callable
    rows: list  # tensors of the whole batch, divided along axis 0
    shared: list = field(default_factory=list)  # equal on every rank, and differentiated
    given: dict = field(default_factory=dict)  # equal on every rank, such as a codebook, and constant
    division: tuple = (4, 4, 4)
    precision: float = 1e-10  # to which a library reproduces its results; some compute in f32
    variant: str = None  # the line of loss_table beside which this is shown
    distributed: bool = True  # whether the library supports several processes


def uniform(name, *shape, low=-1.0, high=1.0, dtype=torch.float64):
    """Numbers of few digits that depend only on the name."""
    draw = random.Random(name)
    count = 1
    for size in shape:
        count *= size
    numbers = [round(draw.uniform(low, high), 4) for _ in range(count)]
    return torch.tensor(numbers, dtype=dtype).reshape(shape)


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def ranks():
    return dist.get_world_size() if dist.is_initialized() else 1


def own(case, tensor):
    if ranks() == 1:
        return tensor
    first = sum(case.division[:rank()])
    return tensor[first:first + case.division[rank()]]


def plain(tensor):
    tensor = tensor.detach()
    return {"shape": list(tensor.shape), "values": tensor.to(torch.float64).flatten().tolist()}


def measure(case):
    """The loss on this process, its gradients and its state, as numbers."""
    rows = [own(case, t).clone().requires_grad_(t.is_floating_point()) for t in case.rows]
    shared = [t.clone().requires_grad_() for t in case.shared]
    result = case.call(rows, shared, {name: t.clone() for name, t in case.given.items()})
    loss, state = result if isinstance(result, tuple) else (result, {})
    divided = [t for t in rows if t.requires_grad]
    leaves = divided + shared
    gradients = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
    gradients = [plain(torch.zeros_like(x) if g is None else g) for x, g in zip(leaves, gradients)]
    return {"value": loss.sum().item(), "rows": gradients[:len(divided)], "shared": gradients[len(divided):],
            "state": {name: plain(t) for name, t in state.items()}}


def work(cases, at, of, folder, answers):
    try:
        torch.set_num_threads(1)
        if of > 1:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=at, world_size=of)
        answers.put((at, [measure(case) if of == 1 or case.distributed else None for case in cases]))
    except Exception:
        answers.put((at, traceback.format_exc()))


def on_processes(cases, of):
    """The measurements of each of `of` processes, for every case."""
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [context.Process(target=work, args=(cases, at, of, folder, answers)) for at in range(of)]
        for worker in workers:
            worker.start()
        measured = {}
        for _ in workers:
            at, answer = answers.get()
            if isinstance(answer, str):
                for worker in workers:
                    worker.terminate()
                raise RuntimeError(f"process {at} of {of}: {answer}")
            measured[at] = answer
        for worker in workers:
            worker.join()
    return list(zip(*(measured[at] for at in range(of))))


def joined(parts):
    """One tensor of the whole batch, from each rank's part."""
    return {"shape": [sum(p["shape"][0] for p in parts)] + parts[0]["shape"][1:],
            "values": [x for p in parts for x in p["values"]]}


def together(measured):
    """Joins the gradients with respect to rows to tensors of the whole batch; other values are listed by rank."""
    return {"values": [m["value"] for m in measured],
            "rows": [joined(parts) for parts in zip(*(m["rows"] for m in measured))],
            "shared": [m["shared"] for m in measured], "states": [m["state"] for m in measured]}


def record(package, cases):
    """The contents of a file: all cases of one library."""
    parted, whole = on_processes(cases, RANKS), on_processes(cases, 1)
    recorded = []
    for case, on_ranks, (alone,) in zip(cases, parted, whole):
        entry = {"loss": case.loss, "mode": case.mode, "variant": case.variant, "division": list(case.division),
                 "precision": case.precision, "inputs": [plain(t) for t in case.rows],
                 "shared": [plain(t) for t in case.shared],
                 "given": {name: plain(t) for name, t in case.given.items()}, "one": together([alone])}
        recorded.append(entry | ({"ranks": together(on_ranks)} if case.distributed else {}))
    return {"library": package, "version": importlib.metadata.version(package),
            "torch": torch.__version__.split("+")[0], "cases": recorded}
