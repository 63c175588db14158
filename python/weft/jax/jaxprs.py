# SPDX-License-Identifier: Apache-2.0
"""The jaxpr of a step, evaluated one equation after the other. What only calls a body, such as jit and checkpoint, is replaced by
the body's equations."""
import jax
from jax.extend import core, source_info_util

_calls = {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat2"}


def _body(equation):
    body = equation.params["jaxpr" if "jaxpr" in equation.params else "call_jaxpr"]
    return getattr(body, "jaxpr", body), getattr(body, "consts", ())


def _scan(operands, change, *, jaxpr, num_consts, num_carry, length, reverse, unroll, **_):
    constants, carry, rows = operands[:num_consts], operands[num_consts:num_consts + num_carry], operands[num_consts + num_carry:]

    def body(carry, row):
        made = results_of(jaxpr.jaxpr, jaxpr.consts, [*constants, *carry, *row], change)
        return made[:num_carry], made[num_carry:]
    carry, made = jax.lax.scan(body, carry, rows, length, reverse, unroll)
    return [*carry, *made]


def bound(equation, operands):
    """What an equation makes of operands."""
    with source_info_util.user_context(equation.source_info.traceback), equation.ctx.manager:
        made = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(equation.params))
    return made if equation.primitive.multiple_results else [made]


def _evaluate(equation, operands, change):
    if equation.primitive.name in _calls:
        return results_of(*_body(equation), operands, change)
    if equation.primitive.name == "scan":
        return _scan(operands, change, **equation.params)
    return change(equation, bound(equation, operands))


def results_of(jaxpr, constants, arguments, change=lambda equation, results: results):
    """`change` may put others in the place of the results of an equation."""
    return Values(jaxpr, constants, arguments, change).of(jaxpr.outvars)


class Values:
    """Of all variables of a jaxpr."""

    def __init__(self, jaxpr, constants, arguments, change=lambda equation, results: results):
        self.values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments)))
        for equation in jaxpr.eqns:
            self.values.update(zip(equation.outvars, _evaluate(equation, self.of(equation.invars), change)))

    def of(self, variables):
        return [x.val if isinstance(x, core.Literal) else self.values[x] for x in variables]


def traced(step, *arguments):
    """The jaxpr of step(*arguments), and the form of its results."""
    closed, shapes = jax.make_jaxpr(step, return_shape=True)(*arguments)
    return closed, jax.tree.structure(shapes)


def flat(step, *arguments):
    """That has no calls."""
    closed, _ = traced(step, *arguments)
    return jax.make_jaxpr(lambda *leaves: results_of(closed.jaxpr, closed.consts, leaves))(*jax.tree.leaves(arguments))
