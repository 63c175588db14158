# SPDX-License-Identifier: Apache-2.0
"""The gradients of each device before they are reduced: what a step would return if its reducers did nothing. These are found in
its jaxpr, from its results backwards."""
import functools

import jax
from jax.extend import core

from .jaxprs import Values, bound, flat

_reducers = {"psum", "psum_invariant", "reduce_scatter"}
_moves = {"convert_element_type", "reshape", "transpose", "squeeze", "broadcast_in_dim", "neg", "copy", "slice", "dynamic_slice",
          "split", "mul", "div", "add", "add_any", "sub", "concatenate", "select_n"}
_casts = {"pvary", "pcast"}  # of types alone


def _operands(equation):
    """Those that can be gradients on their way through a reducer."""
    if equation.primitive.name in ("mul", "div"):
        factors = equation.invars if equation.primitive.name == "mul" else equation.invars[:1]
        return [x for x in factors if isinstance(x, core.Var) and x.aval.shape == equation.outvars[0].aval.shape]
    return [x for x in equation.invars if isinstance(x, core.Var)]


class _Local:
    def __init__(self, closed, arguments, axes):
        self.axes, self.values = axes, Values(closed.jaxpr, closed.consts, arguments)
        self.makers = {made: equation for equation in closed.jaxpr.eqns for made in equation.outvars}
        self.found = functools.cache(self._found)

    def _varying(self, x):
        kind = jax.typeof(x)
        varying = kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else kind.vma  # of an older JAX
        missing = tuple(axis for axis in self.axes if axis not in varying)
        return jax.lax.pcast(x, missing, to="varying") if missing else x

    def value(self, variable):
        return self._varying(self.values.of([variable])[0])

    def before(self, variable):
        inner = self.of(variable)
        return self.value(variable) if inner is None else inner

    def of(self, variable):
        """None where nothing is reduced."""
        return None if isinstance(variable, core.Literal) else self.found(variable)

    def _found(self, variable):
        equation = self.makers.get(variable)
        name = equation.primitive.name if equation else None
        if name in _reducers:
            return self.before(equation.invars[equation.outvars.index(variable)])
        if name in _casts:
            return self.of(equation.invars[0])
        gradients = _operands(equation) if name in _moves else []
        inner = [self.of(x) if any(x is each for each in gradients) else None for x in equation.invars]
        if all(x is None for x in inner):
            return None
        made = bound(equation, [self.value(x) if own is None else own for x, own in zip(equation.invars, inner)])
        return made[equation.outvars.index(variable)]


def local(step, axes):
    """`axes` of the mesh are those by which types tell devices apart, if they do."""
    def before(parameters, batch):
        closed = flat(step, parameters, batch)
        found = _Local(closed, jax.tree.leaves((parameters, batch)), axes)
        return [found.before(x) for x in closed.jaxpr.outvars]
    return before
