# SPDX-License-Identifier: Apache-2.0
"""A step on the devices of a mesh, and what each of them has."""
import dataclasses

import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@dataclasses.dataclass(frozen=True)
class Mapped:
    """How shard_map divides parameters, batch and gradients."""
    mesh: Mesh
    parameters: object  # specs
    batch: object
    gradients: object
    check_vma: bool
    is_loss: bool

    def __call__(self, step, out_specs=None, parameters=None):
        return jax.shard_map(step, mesh=self.mesh, in_specs=(self.parameters if parameters is None else parameters, self.batch),
                             out_specs=self.gradients if out_specs is None else out_specs, check_vma=self.check_vma)

    @property
    def each(self):
        """The spec of what each device has of its own, along the first axis."""
        return PartitionSpec(self.mesh.axis_names)

    def on_one(self):
        first = self.mesh.devices.reshape(-1)[:1].reshape((1,) * self.mesh.devices.ndim)
        return dataclasses.replace(self, mesh=Mesh(first, self.mesh.axis_names, axis_types=self.mesh.axis_types))

    def gradients_of(self, step):
        """As a function of parameters and batch; a loss is differentiated outside of shard_map."""
        return jax.jit(jax.grad(self(step)) if self.is_loss else self(step))

    def of_devices(self, x):
        """Of each device, in the mesh's order: where its part of an array lies, and this part."""
        shards = {each.device: each for each in x.addressable_shards}
        return [(shards[device].index, shards[device].data) for device in self.mesh.devices.flat]

    def parts_of(self, batch):
        """The samples of each device that has some of its own."""
        leaves, form = jax.tree.flatten(batch)
        is_spec = lambda x: isinstance(x, PartitionSpec)
        specs = jax.tree.leaves(jax.tree.broadcast(self.batch, batch, is_leaf=is_spec), is_leaf=is_spec)
        placed = [self.of_devices(jax.device_put(x, NamedSharding(self.mesh, spec))) for x, spec in zip(leaves, specs)]
        parts = {}
        for own in zip(*placed):
            parts.setdefault(str([place for place, _ in own]), form.unflatten(part for _, part in own))
        return list(parts.values())


def whole(parts, shape):
    """Of each device all of an array: its part, with those that others have. Of those that several have, each takes its own."""
    arrays, copies, of_device = [], {}, []
    for place, part in parts:
        copy = copies[str(place)] = copies.get(str(place), -1) + 1
        if copy == len(arrays):
            arrays.append(numpy.zeros(shape, part.dtype))
        arrays[copy][place] = numpy.asarray(part)
        of_device.append(copy)
    return [arrays[copy] for copy in of_device]
