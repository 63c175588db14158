# SPDX-License-Identifier: Apache-2.0
"""weft.jax: steps of shard_map and pmap on devices of this process; right, and with mistakes."""
import math

import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
jax.config.update("jax_num_cpu_devices", 6)
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, PartitionSpec as P

import weft
import weft.jax
from weft.jax.mapped import whole

import planted_jax_steps as planted


def mesh(*ranks):
    return Mesh(numpy.array(jax.devices()[:math.prod(ranks)]).reshape(ranks), ("data", "model")[:len(ranks)])


def check(step, options, ranks=(3,), kind=jnp.float32, **others):
    return weft.jax.check(step, *planted.given(kind, seed=len(ranks)), mesh=mesh(*ranks), **planted.masked, **options, **others)


def name_of(case):
    return case.__name__ if callable(case) else None


@pytest.mark.parametrize("step, options", planted.right_steps, ids=name_of)
@pytest.mark.parametrize("ranks, kind", [(2, jnp.bfloat16), (3, jnp.float32), (5, jnp.float16)])
def test_right_steps(step, options, ranks, kind):
    found = check(step, options, (ranks,), kind)
    assert found and found.cause is None, str(found)


@pytest.mark.parametrize("step, options", planted.right_steps_on_two_axes, ids=name_of)
def test_right_steps_on_two_axes(step, options):
    found = check(step, options, (3, 2))
    assert found, str(found)


def test_a_step_whose_devices_divide_the_parameters():
    found = check(planted.shards_of_parameters, planted.sharded, (2,))
    assert found and len(found.verdicts[0].table) == 3, str(found)
    twice = lambda *both: jax.tree.map(lambda x: 2 * x if jax.lax.axis_size("data") > 1 else x, planted.shards_of_parameters(*both))
    assert str(check(twice, planted.sharded, (2,)).cause).startswith("S8")


@pytest.mark.parametrize("kind", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("step, options, said", planted.wrong_steps, ids=name_of)
def test_planted_mistakes(step, options, said, kind):
    found = check(step, options, kind=kind)
    assert found.wrong
    # In bf16 what two explanations differ by may be less than rounding; being found is what is asked of it.
    assert kind == jnp.bfloat16 or str(found.cause).startswith(said), str(found)
    with pytest.raises(weft.WrongGradient, match="parameters: wrong"):
        found.raise_if_wrong()


def test_types_that_tell_devices_apart():
    """With them, gradients of what all devices have are summed already, and a mean over the devices is one of equal sums."""
    assert check(planted.mean_of_sums, planted.alike)
    assert str(check(planted.summed, planted.alike).cause).startswith("S8")


def lost(parameters, batch):
    """Of the other factor no gradient comes back, on one device neither."""
    def of_rank(p):
        own = batch["inputs"] @ p["up"]
        return jnp.sum((own @ jax.lax.stop_gradient(jax.lax.all_gather(own, "data", tiled=True)).T) ** 2) / 1000
    return jax.lax.psum(jax.grad(of_rank)(parameters), "data")


def test_a_gather_that_loses_its_gradient_on_one_device_too():
    found = check(lost, planted.untyped)
    assert found.outcome == "cannot tell" and "no gradient passes through all_gather at test_jax.py:" in str(found), str(found)


def test_what_is_kept_is_judged_alike(tmp_path):
    found = check(planted.mean_of_means, planted.untyped, dump=tmp_path)
    assert str(weft.verify(tmp_path)) == str(found)


def test_another_truth():
    double = lambda *both: jax.tree.map(lambda x: 2 * x, planted.summed(*both))
    assert check(double, planted.untyped)
    assert str(check(double, planted.untyped, truth=planted.summed).cause).startswith("S33")


def test_as_under_pmap():
    given = planted.given(jnp.float32)
    assert weft.jax.check(planted.summed, *given, axis_name="data", devices=jax.devices()[:3])
    assert weft.jax.check(planted.summed, *given, axis_name="data").ranks == 6


def test_one_array_and_one_number():
    """Which is a loss and which a gradient their forms do not say."""
    rows = planted.draw(0, 12, 3)
    loss = lambda w, batch: jax.lax.pmean(jnp.mean((batch @ jnp.ones(3) * w.sum()) ** 2), "data")
    for w in jnp.ones(2), jnp.float32(2):
        step = loss if w.ndim else jax.grad(loss)
        assert weft.jax.check(step, w, rows, mesh=mesh(3), **planted.alike)


def test_parts_of_devices():
    rows = lambda first, last: (slice(first, last), slice(None))
    parts = [(rows(0, 1), [[1, 2]]), (rows(0, 1), [[5, 6]]), (rows(1, 2), [[3, 4]]), (rows(1, 2), [[7, 8]])]
    arrays = whole([(place, numpy.array(part)) for place, part in parts], (2, 2))
    assert [x.tolist() for x in arrays] == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]] * 2


def test_what_is_refused(monkeypatch):
    given = planted.given(jnp.float32)
    with pytest.raises(ValueError, match="give mesh= and in_specs="):
        weft.jax.check(planted.summed, *given)
    with pytest.raises(ValueError, match="one device has nothing to compare"):
        weft.jax.check(planted.summed, *given, axis_name="data", devices=jax.devices()[:1])
    with pytest.raises(ValueError, match="in_specs= are two"):
        weft.jax.check(planted.summed, *given, mesh=mesh(3))
    with pytest.raises(ValueError, match="returns gradients, in the form of its parameters, or the loss"):
        weft.jax.check(lambda p, b: (planted.summed(p, b), 1.0), *given, axis_name="data")
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(ValueError, match="devices of other processes"):
        weft.jax.check(planted.summed, *given, axis_name="data")
