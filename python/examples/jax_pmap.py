# SPDX-License-Identifier: Apache-2.0
"""pmap: gradients of means are averaged, not summed."""
import sys

import jax
import jax.numpy as jnp

import weft.jax

jax.config.update("jax_num_cpu_devices", 3)


def loss(parameters, batch):
    inputs, targets = batch
    return jnp.mean((jnp.tanh(inputs @ parameters["up"]) @ parameters["down"] - targets) ** 2)


def step(parameters, batch):
    return jax.lax.pmean(jax.grad(loss)(parameters, batch), "data")


def wrong(parameters, batch):
    return jax.lax.psum(jax.grad(loss)(parameters, batch), "data")


def draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


if __name__ == "__main__":
    print(weft.jax.check(wrong if "wrong" in sys.argv else step, {"up": draw(0, 6, 8), "down": draw(1, 8, 3)},
                         (draw(2, 24, 6), draw(3, 24, 3)), axis_name="data"))
