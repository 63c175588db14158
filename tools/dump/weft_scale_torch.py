# SPDX-License-Identifier: Apache-2.0
"""Checks the gradients of any PyTorch model by differences of its loss: dumps them for `weft verify`, if WEFT_DUMP names
a folder; otherwise does nothing.

    import weft_scale_torch as weft_scale
    weft_scale.dump(lambda: criterion(model(inputs), targets), model, rows=len(inputs))  # in place of a training step

    WEFT_DUMP=folder torchrun --nproc-per-node 3 train.py; weft verify folder

Works with one process per rank: plain, DDP, FSDP2, tensor parallel or both. The function returns the loss of this rank, and is
called once for backward, and twelve times for each parameter whose name contains $WEFT_DUMP_PARAMETERS, or for each of all.
Random numbers, parameters and buffers are the same in each call, and afterwards what they were. Use model.double(): in f32
many differences are too inexact, and in bf16 nearly all; weft.torch.check judges steps in any type.

Autograd stops where the function calls detach(), as straight-through estimators and losses with a stopped gradient do. Differences
do not, unless held=True: then every detached value is what it is where nothing is moved.
"""
import json
import os
import pathlib
import sys
import zlib

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate
from torch.overrides import TorchFunctionMode

folder = os.environ.get("WEFT_DUMP")
chosen = os.environ.get("WEFT_DUMP_PARAMETERS", "")
_library = str(pathlib.Path(torch.__file__).parent)


def _directions(name, parameter, count):
    """Of length one and exact in bf16, and the same on all ranks."""
    draw = torch.randn(count, parameter.numel(), generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
    return (draw / draw.norm(dim=1, keepdim=True)).bfloat16()


def _like(p, values):
    """In the form of the parameter, which FSDP2 divides among ranks."""
    values = values.to(p.device, p.dtype).reshape(p.shape)
    if not isinstance(p, DTensor):
        return values
    everywhere = [Replicate()] * p.device_mesh.ndim  # so no rank has to send its part to another
    return DTensor.from_local(values, p.device_mesh, everywhere, run_check=False).redistribute(placements=p.placements)


class _Detached(TorchFunctionMode):
    """The values that the program, and no library, detaches, and where. Given those of a call before, it gets these instead."""

    def __init__(self, held=()):
        super().__init__()
        self.values, self.places, self.held = [], set(), held

    def __torch_function__(self, function, types, given=(), options=None):
        result, caller = function(*given, **(options or {})), sys._getframe(1)
        if function not in (torch.Tensor.detach, torch.Tensor.data.__get__) or _library in caller.f_code.co_filename:
            return result
        if given[0].requires_grad:
            self.places.add(f"{pathlib.Path(caller.f_code.co_filename).name}:{caller.f_lineno}")
        self.values.append(self.held[len(self.values)] if self.held else result.clone())
        return self.values[-1]


def _whole(x):
    return (x.full_tensor() if isinstance(x, DTensor) else x).detach().clone().contiguous().cpu()


def dump(loss, model, objective=None, rows=None, reducer="mean", micro_batches=1, step=None, backward=None, directions=3,
         held=False):
    """Collective. `objective`, if a wrong factor of the loss itself is to be found, returns the intended loss of the whole
    batch; or its terms by name, {"task": ..., "auxiliary": ...}, if a wrong factor of one of them is. `backward` makes
    the gradients that the optimizer gets, by default loss().backward(). `held`: see above."""
    if not folder:
        return
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    watched = [(name.removeprefix("module."), p) for name, p in model.named_parameters() if p.requires_grad and chosen in name]
    step = step or (1e-3 if all(p.dtype == torch.float64 for _, p in watched) else 2**-5)
    functions = {"rank_loss": loss} | ({"objective": objective} if objective else {})
    before, tensors, at_rest = [(x, x.detach().clone()) for x in (*model.parameters(), *model.buffers())], {}, {}
    model.zero_grad()
    with torch.random.fork_rng(), _Detached() as detached:
        (backward or (lambda: loss().backward()))()
    for name, p in watched:
        tensors[f"reduced/{name}"] = _whole(torch.zeros_like(p) if p.grad is None else p.grad)
    model.zero_grad()

    def restore():
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # otherwise the next call takes what this one has gathered
        for x, value in before:
            x.copy_(value)

    def values(kind, p=None, offset=0):
        restore()
        if p is not None:
            p.add_(offset)
        with torch.random.fork_rng(), _Detached(at_rest.get(kind, ()) if held else ()) as detached:
            result = functions[kind]()
        at_rest.setdefault(kind, detached.values)
        terms = {f"@{term}": x.item() for term, x in result.items()} if isinstance(result, dict) else {}
        return {"": sum(terms.values()) if terms else result.item()} | terms  # the whole has no name

    with torch.no_grad():
        for kind in functions:
            tensors |= {kind + term: torch.tensor(x, dtype=torch.float64) for term, x in values(kind).items()}
        for name, p in watched:
            along = _directions(name, p, directions)
            for kind in functions:
                moved = [[values(kind, p, _like(p, by * step * d.to(p.dtype))) for by in (-1, -0.5, 0.5, 1)] for d in along]
                for term in moved[0][0]:
                    tensors[f"{kind}/{name}{term}"] = torch.tensor([[x[term] for x in row] for row in moved], dtype=torch.float64)
            if rank == 0:
                tensors[f"direction/{name}"] = along
        restore()
    all_rows = [rows] * ranks
    if dist.is_initialized():
        dist.all_gather_object(all_rows, rows)
    (place := pathlib.Path(folder)).mkdir(parents=True, exist_ok=True)
    save_file(tensors, place / f"rank{rank}.safetensors")
    if rank == 0:
        scale = {"step": step, "detached": sorted(detached.places), "held": held}
        manifest = {"weft_manifest": 1, "reducer": reducer, "micro_batches": micro_batches, "scale": scale,
                    "files": [f"rank{r}.safetensors" for r in range(ranks)]} | ({"rows": all_rows} if rows is not None else {})
        (place / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
