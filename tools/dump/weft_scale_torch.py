# SPDX-License-Identifier: Apache-2.0
"""Checks the gradients of any PyTorch model by differences of its loss: dumps them for `weft verify`, if WEFT_DUMP names
a folder; otherwise does nothing.

    import weft_scale_torch as weft_scale
    weft_scale.dump(lambda: criterion(model(inputs), targets), model, rows=len(inputs))  # in place of a training step

    WEFT_DUMP=folder torchrun --nproc-per-node 3 train.py; weft verify folder

Works with one process per rank, plain or under DDP. The function returns the loss of this rank, and is called once for
backward, and twelve times for each parameter whose name contains $WEFT_DUMP_PARAMETERS, or for each of all. Random
numbers, parameters and buffers are the same in each call, and afterwards what they were. Use model.double(): in f32 many
differences are too inexact.
"""
import json
import os
import pathlib
import zlib

import torch
import torch.distributed as dist
from safetensors.torch import save_file

folder = os.environ.get("WEFT_DUMP")
chosen = os.environ.get("WEFT_DUMP_PARAMETERS", "")


class _Rest:
    """Everything that a step can change besides gradients, as it was."""

    def __init__(self, model):
        self.before = [(x, x.detach().clone()) for x in (*model.parameters(), *model.buffers())]
        self.random = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def restore(self):
        with torch.no_grad():
            for x, before in self.before:
                x.copy_(before)
        torch.set_rng_state(self.random[0])
        if self.random[1]:
            torch.cuda.set_rng_state_all(self.random[1])


def _directions(name, parameter, count):
    """Of length one and exact in bf16, and the same on all ranks."""
    draw = torch.randn(count, parameter.numel(), generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
    return (draw / draw.norm(dim=1, keepdim=True)).bfloat16()


def dump(loss, model, objective=None, rows=None, reducer="mean", micro_batches=1, step=None, backward=None, directions=3):
    """Collective. `objective` returns the intended loss of the whole batch, if a wrong factor of the loss itself is to be
    found; `backward` makes the gradients that the optimizer gets, by default loss().backward()."""
    if not folder:
        return
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    watched = [(name.removeprefix("module."), p) for name, p in model.named_parameters() if p.requires_grad and chosen in name]
    step = step or (1e-3 if all(p.dtype == torch.float64 for _, p in watched) else 2**-5)
    functions = {"rank_loss": loss} | ({"objective": objective} if objective else {})
    rest, tensors = _Rest(model), {}

    model.zero_grad()
    (backward or (lambda: loss().backward()))()
    for name, p in watched:
        tensors[f"reduced/{name}"] = torch.zeros_like(p).cpu() if p.grad is None else p.grad.detach().clone().contiguous().cpu()
    model.zero_grad()

    def value(kind, p=None, offset=0):
        rest.restore()
        if p is not None:
            p.add_(offset)
        return functions[kind]().item()

    with torch.no_grad():
        for kind in functions:
            tensors[kind] = torch.tensor(value(kind), dtype=torch.float64)
        for name, p in watched:
            along = _directions(name, p, directions)
            for kind in functions:
                tensors[f"{kind}/{name}"] = torch.tensor(
                    [[value(kind, p, (by * step * d.to(p)).reshape(p.shape)) for by in (-1, -0.5, 0.5, 1)] for d in along],
                    dtype=torch.float64)
            if rank == 0:
                tensors[f"direction/{name}"] = along
    rest.restore()

    all_rows = [rows] * ranks
    if dist.is_initialized():
        dist.all_gather_object(all_rows, rows)
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    save_file(tensors, place / f"rank{rank}.safetensors")
    if rank == 0:
        manifest = {"weft_manifest": 1, "reducer": reducer, "files": [f"rank{r}.safetensors" for r in range(ranks)],
                    "scale": {"step": step, "micro_batches": micro_batches}}
        if rows is not None:
            manifest["rows"] = all_rows
        (place / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
