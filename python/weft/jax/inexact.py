# SPDX-License-Identifier: Apache-2.0
"""By how much rounding moves the gradients of a step: weights, samples, matrix products and casts are off by the precision of their
types. So no tolerance is chosen."""
import itertools

import jax
import jax.numpy as jnp

from .jaxprs import results_of, traced


def _is_float(x):
    return jnp.issubdtype(x.dtype, jnp.floating)


def _signs(x, number):
    """1 or -1 for each element: a hash of its place and of a number."""
    bits = jnp.arange(x.size, dtype=jnp.uint32) * jnp.uint32(0x9E3779B1) + jnp.uint32(number) * jnp.uint32(0x85EBCA77)
    for factor in (0x7FEB352D, 0x846CA68B):
        bits = (bits ^ (bits >> 16)) * jnp.uint32(factor)
    return jnp.where(bits >> 31, 1, -1).reshape(x.shape).astype(x.dtype)


def off(x, number, precision=None):
    """By the distance of two neighbours in its type, or in that of `precision`, up or down. Another number gives other signs."""
    return x * (1 + float(jnp.finfo(precision or x.dtype).eps) * _signs(x, number)) if _is_float(x) else x


def _rounded_to(equation):
    """The type to which an equation rounds; none, if its rounding is not counted."""
    if equation.primitive.name in ("dot_general", "conv_general_dilated"):
        return equation.outvars[0].aval.dtype
    if equation.primitive.name == "convert_element_type":
        types = {x.aval.dtype for x in (*equation.invars, *equation.outvars) if _is_float(x.aval)}
        return max(types, key=lambda each: jnp.finfo(each).eps) if len(types) > 1 else None
    return None


def inexact(step, seed):
    """A function of parameters and batch that are off already."""
    def step_off(parameters, batch):
        closed, form = traced(step, parameters, batch)
        numbers = itertools.count(1 << 16)

        def change(equation, results):
            precision = _rounded_to(equation)
            return results if precision is None else [off(results[0], _numbered(seed, next(numbers)), precision)]
        return form.unflatten(results_of(closed.jaxpr, closed.consts, jax.tree.leaves((parameters, batch)), change))
    return step_off


def _numbered(seed, number):
    return (seed << 24) + number


def tree_off(tree, seed):
    leaves, form = jax.tree.flatten(tree)
    return form.unflatten(off(jnp.asarray(x), _numbered(seed, number)) for number, x in enumerate(leaves))
