# SPDX-License-Identifier: Apache-2.0
"""Collectives through which no gradient passes, although their input has one."""
import pathlib
import traceback

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_libraries = pathlib.Path(torch.__file__).parent, pathlib.Path(__file__).parent


def place():
    """The line of the caller's program."""
    lines = [line for line in traceback.extract_stack() if not any(pathlib.Path(line.filename).is_relative_to(each) for each in _libraries)]
    return f"{pathlib.Path(lines[-1].filename).name}:{lines[-1].lineno}" if lines else "an unknown place"


class LostGradients(TorchDispatchMode):
    """Notes them in `calls`. Those within an autograd.Function are its own business: there no gradients are recorded."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, op, types, given=(), options=None):
        if op.namespace == "c10d" and torch.is_grad_enabled():
            if any(isinstance(x, torch.Tensor) and x.requires_grad for x in tree_leaves(given)):
                self.calls.append(f"{op._opname.strip('_')} at {place()}")
        return op(*given, **(options or {}))
