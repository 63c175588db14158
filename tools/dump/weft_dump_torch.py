# SPDX-License-Identifier: Apache-2.0
"""Dumps a training step of PyTorch for `weft verify`, if WEFT_DUMP names a folder; otherwise does nothing.

    import weft_dump_torch as weft_dump
    model = weft_dump.parameters(DistributedDataParallel(model))  # their gradients, before and after the reducer
    images, texts = weft_dump.features(images=images, texts=texts)  # what goes into the loss
    (scale,) = weft_dump.scalars(scale=scale)
    loss(images, texts, scale).backward()
    weft_dump.save("clip", {"normalize": 0})  # before optimizer.step(); the loss as `weft cases` calls it, or none

    WEFT_DUMP=folder torchrun --nproc-per-node 3 train.py; weft verify folder

Works with one process per rank: plain, DDP, or FSDP2, of whose parameters only the reduced gradients can be seen (for
`weft compare`; weft_scale_torch.py verifies them). Gradients of parameters are dumped for those whose names contain $WEFT_DUMP_PARAMETERS, or all. A later
step replaces an earlier one, and of several micro-batches the features of the last are kept.
"""
import atexit
import json
import os
import pathlib

import torch
import torch.distributed as dist
from safetensors.torch import save_file

folder = os.environ.get("WEFT_DUMP")
chosen = os.environ.get("WEFT_DUMP_PARAMETERS", "")
_seam, _local, _watched = {}, {}, []


def keep(name, tensor, tensors=_seam):
    """Puts a tensor into the dump."""
    tensors[name] = tensor.detach().clone().contiguous().cpu()


def _watch(name, tensor):
    """The tensor, whose gradient is kept as it reaches what computed it: the sum, if several backward passes add to it."""
    keep(name, tensor)
    _seam.pop(f"{name}.grad", None)

    def add(gradient):
        before = _seam.get(f"{name}.grad", torch.zeros((), dtype=gradient.dtype))
        keep(f"{name}.grad", before + gradient.cpu())
    if tensor.requires_grad:
        tensor.register_hook(add)
    return tensor


def features(**named):
    return tuple(_watch(name, tensor) if folder else tensor for name, tensor in named.items())


scalars = features  # numbers that all ranks have, such as a temperature


def parameters(model):
    """Each backward pass is a micro-batch."""
    for name, parameter in model.named_parameters() if folder else ():
        name = name.removeprefix("module.")
        if chosen not in name or not parameter.requires_grad:
            continue
        _watched.append((name, parameter))
        passes = _local.setdefault(name, [])
        if not hasattr(parameter, "full_tensor"):
            parameter.register_hook(lambda gradient, passes=passes: passes.append(gradient.detach().clone().cpu()))
    return model


def save(loss=None, options=None, reducer="mean", micro_batches=1):
    """Collective: every rank calls it after backward, and before the optimizer changes anything. `micro_batches` says in
    how many backward passes cached features got their gradients."""
    if not folder:
        return
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    tensors = dict(_seam)
    for name, parameter in _watched:
        gradient = parameter.grad
        if gradient is None or not (_local[name] or hasattr(gradient, "full_tensor")):
            continue
        whole = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient  # waits for FSDP2's reduction
        keep(f"reduced/{name}", whole, tensors)
        for k, local in enumerate(_local[name]):
            keep(f"local/{name}/{k}", local, tensors)
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    save_file(tensors, place / f"rank{rank}.safetensors")
    if rank == 0:
        manifest = {"weft_manifest": 1, "reducer": reducer, "micro_batches": micro_batches,
                    "files": [f"rank{r}.safetensors" for r in range(ranks)]}
        if loss:
            manifest["loss"] = {"name": loss, "options": options or {}}
        (place / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    _seam.clear()
    for passes in _local.values():
        passes.clear()


if folder:
    atexit.register(lambda: None if not _seam else print("weft_dump: a backward pass was not saved; call save() after it"))
