# SPDX-License-Identifier: Apache-2.0
"""The same step on one process with the whole batch, and by how much rounding moves its gradients: the step is repeated with
weights, samples, the outputs of layers and casts off by the precision of their types. So no tolerance is chosen, and a straight-through
estimator or a stopped gradient counts as what autograd makes of it."""
import functools

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .batches import mapped
from .evidence import differentiate, gradients_of, plain
from .lost_gradients import LostGradients

_length = 1 << 20


@functools.lru_cache
def _factors(dtype, precision):
    """Numbers next to one, above or below. Large tensors use them again, from another one on."""
    signs = torch.randint(0, 2, (2 * _length,), generator=torch.Generator().manual_seed(0), dtype=torch.int8) * 2 - 1
    return 1 + torch.finfo(precision).eps * signs.to(dtype)


class Inexact:
    """Off by the distance of two neighbours in its type, or in that of `precision`, up or down."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, x, precision=None):
        if type(x) not in (torch.Tensor, torch.nn.Parameter) or not x.is_floating_point():
            return x
        start = torch.randint(_length, (), generator=self.generator).item()
        factors = _factors(x.dtype, precision or x.dtype)[start:].to(x.device)
        if x.numel() <= _length:
            return x * factors[:x.numel()].view(x.shape)
        whole, rest = x.reshape(-1).split([x.numel() // _length * _length, x.numel() % _length])
        return torch.cat([(whole.view(-1, _length) * factors[:_length]).view(-1), rest * factors[:len(rest)]]).view(x.shape)


def exactly(x):
    return x


class _InexactCasts(TorchDispatchMode):
    """What was, or becomes, of a coarser type is rounded to it: under autocast, or where a loss computes in f32 whatever its
    model."""

    def __init__(self, off):
        super().__init__()
        self.off = off

    def __torch_dispatch__(self, op, types, given=(), options=None):
        made = op(*given, **(options or {}))
        if op is not torch.ops.aten._to_copy.default or not (made.is_floating_point() and given[0].is_floating_point()):
            return made
        types = {made.dtype, given[0].dtype}
        return self.off(made, max(types, key=lambda each: torch.finfo(each).eps)) if len(types) > 1 else made


def _local(x):
    return x.to_local() if hasattr(x, "to_local") else x


def load(model, weights, off=exactly):
    for name, x in (*model.named_parameters(), *model.named_buffers()):
        if plain(name) not in weights:
            raise ValueError(f"no rank has the parameter {plain(name)}, which the model has on one process")
        _local(x).copy_(off(weights[plain(name)]))


def gradients_on_one(model, step, batch, random_numbers, off=exactly):
    """Of a model whose weights are off already; and, if they are not, the collectives through which no gradient passes."""
    hooks = [] if off is exactly else [module.register_forward_hook(lambda _, given, result: off(result))
                                       for module in model.modules() if not list(module.children())]
    torch.set_rng_state(random_numbers)
    with LostGradients() if off is exactly else _InexactCasts(off) as mode:
        differentiate(model, step, mapped(off, batch))
    for hook in hooks:
        hook.remove()
    return gradients_of(model), getattr(mode, "calls", [])


def truth_of(model, step, batch, weights, passes):
    """The gradients, and those of inexact passes: each costs as much as a step with the whole batch. And the collectives through
    which no gradient passes."""
    random_numbers, all_gradients, lost = torch.get_rng_state(), [], []
    for off in (exactly, *map(Inexact, range(passes))):
        with torch.no_grad():
            load(model, weights, off)
        found, calls = gradients_on_one(model, step, batch, random_numbers, off)
        lost += calls
        all_gradients.append({name: x.clone() for name, x in found.items()})  # DDP's buckets are used again
    return all_gradients[0], all_gradients[1:], lost
