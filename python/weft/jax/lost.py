# SPDX-License-Identifier: Apache-2.0
"""Gathers through which no gradient passes: what they make goes into stop_gradient, as it is or in another shape."""
import pathlib

import jax
from jax.extend import core, source_info_util

from .jaxprs import flat

_gathers = {"all_gather", "all_gather_invariant", "all_to_all", "ppermute"}
_shapes = {"reshape", "transpose", "squeeze", "slice", "concatenate", "convert_element_type", "pvary"}


def _told(equation):
    """With the line of the caller's program."""
    path, line, *_ = source_info_util.summarize(equation.source_info).split(" ")[0].split(":")
    return f"{equation.primitive.name} at {pathlib.Path(path).name}:{line}"


def _lost_in(jaxpr, parameters):
    of_parameters, gathered = set(jaxpr.invars[:parameters]), {}
    for equation in jaxpr.eqns:
        name, given = equation.primitive.name, [x for x in equation.invars if isinstance(x, core.Var)]
        if not of_parameters.isdisjoint(given):
            of_parameters.update(equation.outvars)
            if name in _gathers:
                gathered.update(dict.fromkeys(equation.outvars, equation))
        for x in given:
            if x in gathered and name in _shapes:
                gathered[equation.outvars[0]] = gathered[x]
            if x in gathered and name == "stop_gradient":
                yield _told(gathered[x])


def lost_gradients(mapped, step, parameters, batch):
    """Those that depend on the parameters."""
    found = []

    def looked_through(*both):
        found.extend(_lost_in(flat(step, *both).jaxpr, len(jax.tree.leaves(parameters))))
        return step(*both)
    jax.eval_shape(mapped(looked_through), parameters, batch)
    return sorted(set(found))
