# SPDX-License-Identifier: Apache-2.0
"""Is the gradient of this PyTorch step the one of a single process with the whole batch?

    import weft.torch
    found = weft.torch.run(step, model, batch, ranks=3)   # starts processes by itself
    found = weft.torch.check(model, step, batch)          # inside a running job, on every rank
    print(found)                                          # which parameters are off by how much, and why

`step(model, batch)` returns the loss of this rank, or calls backward itself. See docs/python.md.
"""
from .check import check
from .run import run

__all__ = ["check", "run"]
