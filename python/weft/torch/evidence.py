# SPDX-License-Identifier: Apache-2.0
"""What one rank has of a step: the gradient of every parameter before and after the reducer."""
import dataclasses

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


@dataclasses.dataclass
class Evidence:
    local: dict    # before the reducer: one tensor for each backward pass, by the name of the parameter
    reduced: dict  # after it


def whole(x):
    """All of a tensor, which may be divided among ranks. Then it is collective."""
    return (x.full_tensor() if isinstance(x, DTensor) else x).detach().cpu()


def term(x):
    """What this rank has of a gradient before it is added up: of a tensor that is a sum over all ranks, its own part."""
    is_sum = isinstance(x, DTensor) and x.device_mesh.size() == dist.get_world_size() and all(p.is_partial("sum") for p in x.placements)
    return whole(x.to_local() if is_sum else x)


def plain(name):
    """The name that a parameter has without the wrappers of DDP, torch.compile, checkpointing and Lightning."""
    wrappers = "module", "_orig_mod", "_checkpoint_wrapped_module", "_forward_module"
    return ".".join(part for part in name.split(".") if part not in wrappers)


def weights_of(model):
    """Parameters and buffers by name."""
    return {plain(name): whole(x).clone() for name, x in (*model.named_parameters(), *model.named_buffers())}


def _watch(model, local):
    """Hooks that note gradients before any reducer. FSDP2 differentiates by other tensors than the parameters it divides: they
    are in place when a module is called."""
    hooks, watched = [], set()

    def watch(name, p):
        if p is not None and p.requires_grad and id(p) not in watched:
            watched.add(id(p))
            hooks.append(p.register_hook(lambda gradient: local.setdefault(name, []).append(gradient.detach().clone())))

    divided = {id(p) for module in model.modules() if isinstance(module, FSDPModule)
               for p in module.parameters()}
    for prefix, module in model.named_modules():
        for name, p in module.named_parameters(recurse=False):
            if id(p) not in divided:
                watch(plain(f"{prefix}.{name}".lstrip(".")), p)

        def before(module, *_, prefix=prefix):
            for name, p in module.named_parameters(recurse=False):
                watch(plain(f"{prefix}.{name}".lstrip(".")), p)
        if divided and any(True for _ in module.parameters(recurse=False)):
            hooks.append(module.register_forward_pre_hook(before))
    return hooks


def gradients_of(model):
    return {plain(name): whole(torch.zeros_like(p) if p.grad is None else p.grad)
            for name, p in model.named_parameters() if p.requires_grad}


def differentiate(model, step, batch):
    """Runs the step, and backward if it has not: then it returns its loss."""
    for p in model.parameters():
        p.grad = None
    loss = step(model, batch)
    if all(p.grad is None for p in model.parameters()):
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            raise ValueError("the step has made no gradients: return its loss, or call backward in it")
        loss.backward()


def evidence_of(model, step, batch):
    local = {}
    hooks = _watch(model, local)
    try:
        differentiate(model, step, batch)
    finally:
        for hook in hooks:
            hook.remove()
    return Evidence({name: [term(x) for x in local[name]] for name in sorted(local)}, gradients_of(model))
