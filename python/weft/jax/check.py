# SPDX-License-Identifier: Apache-2.0
"""A step on the devices of this process, on one of them, and the verdict."""
import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, PartitionSpec

from .. import verify, write_rank, write_truth
from ..stored import folder_of, write_step
from .inexact import inexact, tree_off
from .local import local
from .lost import lost_gradients
from .mapped import Mapped, whole

_passes = 4  # of inexact truths


def _by_name(tree):
    name = lambda part: str(getattr(part, "key", getattr(part, "idx", getattr(part, "name", part))))
    return {".".join(map(name, path)) or "parameters": x for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _each(tree):
    """As an entry of an array that has one of each device."""
    return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)


def _mapped(step, parameters, batch, mesh, in_specs, out_specs, check_vma, axis_name, devices):
    if (mesh is None) == (axis_name is None):
        raise ValueError("give mesh= and in_specs= as for shard_map, or axis_name= as for pmap")
    if axis_name is not None:
        mesh, check_vma = Mesh(numpy.array(devices or jax.devices()), (axis_name,)), False
        in_specs = PartitionSpec(), PartitionSpec(axis_name)
    if mesh.size == 1:
        raise ValueError('one device has nothing to compare: jax.config.update("jax_num_cpu_devices", 3) before anything else of JAX')
    if any(device.process_index != jax.process_index() for device in mesh.devices.flat):
        raise ValueError("the mesh has devices of other processes: take devices of this one")
    if in_specs is None or len(in_specs) != 2:
        raise ValueError("in_specs= are two: of the parameters and of the batch")
    given = Mapped(mesh, *in_specs, out_specs, check_vma, is_loss=False)
    made = jax.eval_shape(given(lambda *both: _each(step(*both)), given.each), parameters, batch)
    if [x.shape for x in jax.tree.leaves(made)] == [(mesh.size,)] and [jnp.shape(x) for x in jax.tree.leaves(parameters)] != [()]:
        return Mapped(mesh, *in_specs, PartitionSpec(), check_vma, is_loss=True)
    if jax.tree.structure(made) != jax.tree.structure(parameters):
        raise ValueError("the step returns gradients, in the form of its parameters, or the loss")
    return Mapped(mesh, *in_specs, in_specs[0] if out_specs is None else out_specs, check_vma, is_loss=False)


def _local_of_loss(mapped, step, parameters, batch):
    """By parameters of which each device has its own. All devices have the same loss, which is their mean."""
    own, _ = mapped(lambda *both: _each((both[0], 0)), mapped.each)(parameters, batch)
    losses = mapped(lambda own, batch: _each(step(jax.tree.map(lambda x: x[0], own), batch)), mapped.each, parameters=mapped.each)
    return jax.jit(jax.grad(lambda *both: losses(*both).mean()))(own, batch)


def _local(mapped, step, parameters, batch):
    """An entry of each device, by name."""
    if mapped.is_loss:
        return _by_name(_local_of_loss(mapped, step, parameters, batch))
    axes = mapped.mesh.axis_names if mapped.check_vma else ()
    found = jax.jit(mapped(lambda *both: _each(local(step, axes)(*both)), mapped.each))(parameters, batch)
    return dict(zip(_by_name(parameters), found))


def _evidence(mapped, step, parameters, batch):
    """Of each device: its gradients before and after they are reduced, by name."""
    reduced, before = _by_name(mapped.gradients_of(step)(parameters, batch)), _local(mapped, step, parameters, batch)
    devices = [{} for _ in range(mapped.mesh.size)]
    for name, x in reduced.items():
        parts, own = mapped.of_devices(x), [numpy.asarray(each) for each in before[name]]
        if own[0].shape == parts[0][1].shape:
            own = whole([(place, each) for (place, _), each in zip(parts, own)], x.shape)
        for device, after, each in zip(devices, whole(parts, x.shape), own):
            device[f"reduced/{name}"] = after
            if each.shape == x.shape:
                device[f"local/{name}/0"] = each
    return devices


def _truth(mapped, step, parameters, batch):
    """And inexact ones."""
    alone = mapped.on_one()
    exact = alone.gradients_of(step)(parameters, batch)

    @jax.jit
    def off(parameters, batch, seed):
        return alone.gradients_of(inexact(step, seed))(*tree_off((parameters, batch), seed))
    return _by_name(exact), [_by_name(off(parameters, batch, seed)) for seed in range(_passes)]


def check(step, parameters, batch, mesh=None, in_specs=None, out_specs=None, check_vma=True, axis_name=None, devices=None, truth=None,
          rows=None, dump=None):
    """Runs a step on all devices of a mesh, and once more on one, and compares every gradient.

    `step(parameters, batch)` is what shard_map or pmap runs on each device. It returns gradients, in the form of the parameters, or
    the loss, which is differentiated outside of shard_map. `mesh`, `in_specs`, `out_specs` and `check_vma` are those of shard_map;
    `in_specs` are two, of the parameters and of the batch, and gradients are divided as parameters are, unless told otherwise. With
    `axis_name` it runs as under pmap, on all devices or on `devices`: each has the parameters, and an equal part of the batch.
    `truth(parameters, batch)` is the step on one device, if that is another. `rows` counts the samples of a device, if some only fill
    it up: lambda batch: batch["mask"].sum(). `dump` is a folder for all that is compared, of which weft.verify says the same.
    """
    mapped = _mapped(step, parameters, batch, mesh, in_specs, out_specs, check_vma, axis_name, devices)
    parts = mapped.parts_of(batch)
    counted = [int(rows(part)) if rows else len(next(x for x in jax.tree.leaves(part) if x.ndim)) for part in parts]
    with folder_of(dump) as folder:
        for device, own in enumerate(_evidence(mapped, step, parameters, batch)):
            write_rank(folder, device, own)
        write_truth(folder, *_truth(mapped, truth or step, parameters, batch))
        lost = [] if truth else lost_gradients(mapped, step, parameters, batch)
        write_step(folder, mapped.mesh.size, counted, {}, lost)
        return verify(folder)
