# SPDX-License-Identifier: Apache-2.0
"""A contrastive loss over the features of all devices: what other devices' samples say of these has to come back."""
import sys

import jax
import jax.numpy as jnp

import weft.jax

jax.config.update("jax_num_cpu_devices", 3)


def normalized(x):
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


def gathered(x):
    return jax.lax.all_gather(x, "data", tiled=True)


def own_slot(x):
    """What other devices sent has no gradient, and the own features are put back."""
    return jax.lax.dynamic_update_slice_in_dim(jax.lax.stop_gradient(gathered(x)), x, jax.lax.axis_index("data") * len(x), 0)


def step(parameters, batch, gather=gathered):
    def loss(parameters):
        images, texts = (gather(normalized(x @ parameters[name])) for name, x in batch.items())
        scores = jnp.exp(parameters["scale"]) * images @ texts.T
        return -jnp.mean(jnp.diag(jax.nn.log_softmax(scores) + jax.nn.log_softmax(scores.T))) / 2
    return jax.lax.pmean(jax.grad(loss)(parameters), "data")


def wrong(parameters, batch):
    return step(parameters, batch, own_slot)


def draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


if __name__ == "__main__":
    print(weft.jax.check(wrong if "wrong" in sys.argv else step,
                         {"images": draw(0, 6, 4), "texts": draw(1, 5, 4), "scale": jnp.float32(1.5)},
                         {"images": draw(2, 24, 6), "texts": draw(3, 24, 5)}, axis_name="data"))
