# SPDX-License-Identifier: Apache-2.0
"""The same step on one process with the whole batch, and by how much rounding moves its gradients: the step is repeated with
weights, samples and the outputs of layers off by the precision of their types. So no tolerance is chosen, and a straight-through
estimator or a stopped gradient counts as what autograd makes of it."""
import dataclasses
import math

import torch

from .batches import mapped
from .evidence import differentiate, gradients_of, plain


@dataclasses.dataclass
class Truth:
    gradients: dict
    moved: dict  # by how much rounding moves each element, by name


def _inexact(x, generator):
    """Off by the distance of two neighbours in its type, up or down."""
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or not x.is_floating_point():
        return x
    signs = torch.randint(0, 2, x.shape, generator=generator).to(x.device, x.dtype) * 2 - 1
    return x * (1 + torch.finfo(x.dtype).eps * signs)


def _local(x):
    return x.to_local() if hasattr(x, "to_local") else x


def load(model, weights):
    for name, x in (*model.named_parameters(), *model.named_buffers()):
        if plain(name) not in weights:
            raise ValueError(f"no rank has the parameter {plain(name)}, which the model has on one process")
        _local(x).copy_(weights[plain(name)])


def truth_of(model, step, batch, weights=None, passes=1):
    """`passes` are those that are inexact: each costs as much as a step with the whole batch. Without `weights` they are those
    that the model has, and will be off."""
    generator, exact, moved = torch.Generator().manual_seed(0), None, {}
    random_numbers = torch.get_rng_state()
    buffers = [x.clone() for x in model.buffers()]
    for number in range(passes + 1):
        off = (lambda x: _inexact(x, generator)) if number else (lambda x: x)
        with torch.no_grad():
            if weights:
                load(model, {name: off(x) for name, x in weights.items()})
            elif number:
                for x, before in (*((p, p) for p in model.parameters()), *zip(model.buffers(), buffers)):
                    _local(x).copy_(off(_local(before)))
        hooks = [module.register_forward_hook(lambda _, given, result: _inexact(result, generator))
                 for module in model.modules() if number and not list(module.children())]
        torch.set_rng_state(random_numbers)
        differentiate(model, step, mapped(off, batch))
        for hook in hooks:
            hook.remove()
        found = gradients_of(model)
        exact = exact or {name: x.clone() for name, x in found.items()}  # DDP's buckets are used again
        for name in found if number else ():
            # A value is off by half the distance of two neighbours at most.
            distance = (found[name].to(_wide(exact[name])) - exact[name]).abs_() / (2 * math.sqrt(passes))
            moved[name] = torch.hypot(moved[name], distance) if name in moved else distance
    return Truth(exact, moved)


def _wide(x):
    return torch.float64 if x.dtype == torch.float64 else torch.float32
