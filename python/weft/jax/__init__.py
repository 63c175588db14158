# SPDX-License-Identifier: Apache-2.0
"""Is the gradient of this step of shard_map or pmap the one of a single device with the whole batch?

    import weft.jax
    found = weft.jax.check(step, parameters, batch, mesh=mesh, in_specs=(P(), P("data")))
    found = weft.jax.check(step, parameters, batch, axis_name="data")    # as under pmap
    print(found)                                                         # which parameters are off by how much, and why

`step(parameters, batch)` is what runs on each device. It returns gradients, or the loss. See docs/python.md.
"""
from .check import check

__all__ = ["check"]
