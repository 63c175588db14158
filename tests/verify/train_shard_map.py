# SPDX-License-Identifier: Apache-2.0
"""A training step of JAX: two towers on three devices under shard_map, and a contrastive loss over the pairs of all.

    WEFT_DUMP=folder python3 tests/verify/train_shard_map.py correct

The word says what happens to gradients of other devices' features, or what is wrong besides:
    correct    all_gather, whose adjoint is psum_scatter; each device's loss is of its own rows
    local      stop_gradient around all_gather
    default    stop_gradient, own features put back, the whole loss on every device
    summed     correct, but gradients of parameters are added by psum where pmean is meant
"""
import os
import pathlib
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "dump"))
import jax
import jax.numpy as jnp
import weft_dump_jax as weft_dump
from jax.sharding import Mesh, PartitionSpec as P

how = sys.argv[1]
mesh = Mesh(jax.devices("cpu"), ("ranks",))
ranks, rows = mesh.size, 5


def normalized(x):
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


def encode(parameters, pictures, sentences):
    hidden = jnp.tanh(pictures @ parameters["pictures"][0])
    return normalized(hidden @ parameters["pictures"][1]), normalized(sentences @ parameters["sentences"])


def gathered(x):
    if how in ("correct", "summed"):
        return jax.lax.all_gather(x, "ranks", tiled=True)
    slots = jax.lax.stop_gradient(jax.lax.all_gather(x, "ranks"))
    if how == "default":
        slots = slots.at[jax.lax.axis_index("ranks")].set(x)
    return slots.reshape(-1, x.shape[1])


def loss(images, texts, scale):
    all_images, all_texts = gathered(images), gathered(texts)
    first = jax.lax.axis_index("ranks") * rows
    if how == "default":
        images, texts, first = all_images, all_texts, 0
    labels = first + jnp.arange(len(images))
    of = lambda x, y: -jnp.mean(jax.nn.log_softmax(scale * x @ y.T)[jnp.arange(len(x)), labels])
    return (of(images, all_texts) + of(texts, all_images)) / 2


def step(parameters, pictures, sentences, scale):
    (images, texts), pull = jax.vjp(lambda p: encode(p, pictures, sentences), parameters)
    gradients = jax.grad(loss, (0, 1, 2))(images, texts, scale)
    (local,) = pull(gradients[:2])
    reduced = (jax.lax.psum if how == "summed" else jax.lax.pmean)(local, "ranks")
    return jax.tree.map(lambda x: x[None], (images, texts, gradients, local, reduced))


draw = lambda seed, *shape: jax.random.normal(jax.random.key(seed), shape)
parameters = {"pictures": [draw(0, 12, 16), draw(1, 16, 8)], "sentences": draw(2, 6, 8)}
sharded = jax.shard_map(step, mesh=mesh, in_specs=(P(), P("ranks"), P("ranks"), P()), out_specs=P("ranks"), check_vma=False)
images, texts, (of_images, of_texts, of_scale), local, reduced = jax.jit(sharded)(
    parameters, draw(3, ranks * rows, 12), draw(4, ranks * rows, 6), jnp.float32(4.5))
weft_dump.save("clip", features={"images": images, "texts": texts}, gradients={"images": of_images, "texts": of_texts},
               scalars={"scale": jnp.full(ranks, 4.5)}, scalar_gradients={"scale": of_scale}, local=local, reduced=reduced)
