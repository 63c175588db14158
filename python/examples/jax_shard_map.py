# SPDX-License-Identifier: Apache-2.0
"""shard_map: devices have equally many samples, but a mask hides some, so the mean of the devices' means is not that of all."""
import sys

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import PartitionSpec as P

import weft.jax

jax.config.update("jax_num_cpu_devices", 3)
mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("data",))


def errors(parameters, batch):
    outputs = jnp.tanh(batch["inputs"] @ parameters["up"]) @ parameters["down"]
    return jnp.sum(batch["mask"] * jnp.mean((outputs - batch["targets"]) ** 2, axis=1))


def loss(parameters, batch):
    return jax.lax.psum(errors(parameters, batch), "data") / jax.lax.psum(jnp.sum(batch["mask"]), "data")


def mean_of_means(parameters, batch):
    return jax.lax.pmean(errors(parameters, batch) / jnp.sum(batch["mask"]), "data")


def step(parameters, batch):
    return jax.grad(loss)(parameters, batch)  # which is summed over the devices, since all of them have the same parameters


def wrong(parameters, batch):
    return jax.grad(mean_of_means)(parameters, batch)


def draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


parameters = {"up": draw(0, 6, 8), "down": draw(1, 8, 3)}
batch = {"inputs": draw(2, 24, 6), "targets": draw(3, 24, 3), "mask": (jnp.arange(24) % 8 <= jnp.arange(24) // 4).astype(float)}

if __name__ == "__main__":
    print(weft.jax.check(wrong if "wrong" in sys.argv else step, parameters, batch, mesh=mesh, in_specs=(P(), P("data")),
                         rows=lambda batch: batch["mask"].sum()))
