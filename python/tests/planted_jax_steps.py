# SPDX-License-Identifier: Apache-2.0
"""Steps of JAX, right and with mistakes, on a mesh with the axis data, or with data and model. Each has the options with which it is
checked."""
import functools

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P

alike = {"in_specs": (P(), P("data"))}
untyped = alike | {"check_vma": False}
masked = {"rows": lambda batch: batch["mask"].sum()}


def draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def given(kind, seed=0, rows=60):
    parameters = {"up": draw(seed, 6, 8), "down": draw(seed + 1, 8, 4), "scale": jnp.float32(1.5)}
    mask = jax.random.bernoulli(jax.random.key(seed + 4), jnp.linspace(1, 0.2, rows))  # fewer on later devices
    batch = {"inputs": draw(seed + 2, rows, 6), "targets": draw(seed + 3, rows, 4), "mask": mask.astype(jnp.float32)}
    return jax.tree.map(lambda x: x.astype(kind), (parameters, batch))


def errors(parameters, batch, model=lambda p, x: p["scale"] * jnp.tanh(x @ p["up"]) @ p["down"]):
    return jnp.sum(batch["mask"] * jnp.sum((model(parameters, batch["inputs"]) - batch["targets"]) ** 2, axis=1))


def valid(batch):
    return jnp.sum(batch["mask"])


def loss(parameters, batch, of_rank=errors):
    return jax.lax.psum(of_rank(parameters, batch), "data") / jax.lax.psum(valid(batch), "data")


def share(parameters, batch, of_rank=errors):
    """Of the loss: the shares of all ranks are summed, and so are their gradients."""
    return of_rank(parameters, batch) / jax.lax.psum(valid(batch), "data")


def own_mean(parameters, batch):
    return errors(parameters, batch) / valid(batch)


def summed(parameters, batch):
    return jax.lax.psum(jax.grad(share)(parameters, batch), "data")


def in_one_bucket(parameters, batch):
    bucket, split = ravel_pytree(jax.grad(share)(parameters, batch))
    return split(jax.lax.psum(bucket, "data"))


def under_jit(parameters, batch):
    return jax.jit(summed)(parameters, batch)


def rematerialized(parameters, batch):
    return jax.lax.psum(jax.grad(lambda p: share(p, batch, jax.checkpoint(errors)))(parameters), "data")


def in_bfloat16(parameters, batch):
    """Weights of any type, but products in bf16."""
    half = functools.partial(jax.tree.map, lambda x: x.astype(jnp.bfloat16))
    model = lambda p, x: (half(p["scale"]) * jnp.tanh(half(x) @ half(p["up"])) @ half(p["down"])).astype(x.dtype)
    return jax.lax.psum(jax.grad(lambda p: share(p, batch, functools.partial(errors, model=model)))(parameters), "data")


def in_a_scan(parameters, batch):
    """Twice through a square layer."""
    def model(p, x):
        square = (p["down"] @ p["down"].T).astype(jnp.bfloat16)
        layer = lambda h: jnp.tanh((h.astype(jnp.bfloat16) @ square).astype(h.dtype))
        hidden, _ = jax.lax.scan(lambda h, _: (layer(h), None), x @ p["up"], length=2)
        return p["scale"] * hidden @ p["down"]
    return jax.lax.psum(jax.grad(lambda p: share(p, batch, functools.partial(errors, model=model)))(parameters), "data")


@jax.custom_vjp
def rounded(x):
    return jnp.round(x)


rounded.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g,))


def straight_through(parameters, batch):
    model = lambda p, x: p["scale"] * (jnp.tanh(x @ p["up"]) + rounded(4 * p["scale"]) / 64) @ p["down"]
    return jax.lax.psum(jax.grad(lambda p: share(p, batch, functools.partial(errors, model=model)))(parameters), "data")


def typed(parameters, batch):
    return jax.grad(loss)(parameters, batch)


def shards_of_parameters(parameters, batch):
    def gathered(own):
        return {name: jax.lax.all_gather(x, "data", axis=1, tiled=True) if x.ndim else x for name, x in own.items()}
    gradients = jax.grad(lambda p: share(gathered(p), batch))(parameters)
    return gradients | {"scale": jax.lax.psum(gradients["scale"], "data")}


def tensor_parallel(p, x):
    return p["scale"] * jax.lax.psum(jnp.tanh(x @ p["up"]) @ p["down"], "model")


divided = {"in_specs": ({"up": P(None, "model"), "down": P("model"), "scale": P()}, P("data"))}
sharded = {"in_specs": ({"up": P(None, "data"), "down": P(None, "data"), "scale": P()}, P("data")), "check_vma": False}


def on_two_axes(parameters, batch):
    return jax.grad(lambda p: loss(p, batch, functools.partial(errors, model=tensor_parallel)))(parameters)


def loss_on_two_axes(parameters, batch):
    return loss(parameters, batch, functools.partial(errors, model=tensor_parallel))


def mean_of_sums(parameters, batch):
    return jax.lax.pmean(jax.grad(share)(parameters, batch), "data")


def sum_of_means(parameters, batch):
    return jax.lax.psum(jax.grad(own_mean)(parameters, batch), "data")


def mean_of_means(parameters, batch):
    return jax.lax.pmean(jax.grad(own_mean)(parameters, batch), "data")


def not_reduced(parameters, batch):
    return jax.grad(share)(parameters, batch)


def one_not_reduced(parameters, batch):
    gradients = jax.grad(share)(parameters, batch)
    return jax.lax.psum(gradients, "data") | {"down": gradients["down"]}


def reduced_twice(parameters, batch):
    return jax.lax.psum(typed(parameters, batch), "data")


def clipped_before(parameters, batch):
    gradients = jax.grad(share)(parameters, batch)
    norm = jnp.sqrt(sum(jnp.sum(x ** 2) for x in jax.tree.leaves(gradients)))
    return jax.lax.psum(jax.tree.map(lambda x: x * jnp.minimum(1, 0.3 / norm), gradients), "data")


right_steps = [(summed, untyped), (in_one_bucket, untyped), (under_jit, untyped), (rematerialized, untyped), (in_bfloat16, untyped),
               (in_a_scan, untyped), (straight_through, untyped), (typed, alike), (loss, alike), (loss, untyped)]
right_steps_on_two_axes = [(on_two_axes, divided), (loss_on_two_axes, divided), (summed, alike | {"check_vma": False})]
# Each with the beginning of what is said of it, on three devices.
wrong_steps = [(mean_of_sums, untyped, "S9"), (mean_of_means, untyped, "S12"), (not_reduced, untyped, "S22"),
               (one_not_reduced, untyped, "S22"),
               (reduced_twice, alike, "S8"), (sum_of_means, untyped, "the gradients of ranks 0 to 2 weigh"),
               (clipped_before, untyped, "the gradients of ranks 0 to 2 weigh")]
