#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the bindings of what Weft's headers declare, so that Python has every op, collective, loss and quantizer with the names,
defaults and comments that C++ has, and none is listed twice.

    bind.py ROOT MODULE OUTPUT

In Python the members of an Options struct are keywords. A Site is the line that calls."""
import keyword
import pathlib
import re
import sys

from declarations import Choice, Function, Group, declared_in

modules = {
    "ops": ["engine/ops/elementwise.h", "engine/ops/matmul.h", "engine/ops/reduce.h", "engine/ops/shape_ops.h", "engine/ops/index.h",
            "engine/ops/normalize.h", "engine/ops/images.h", "engine/ops/scores.h", "engine/ops/nearest.h", "engine/ops/dropout.h",
            "engine/tape/var.h"],
    "collectives": ["collectives/communicator.h", "collectives/collectives.h", "collectives/placement_conversions.h",
                    "collectives/group_placement.h", "collectives/share.h"],
    "losses": ["losses/contrastive/clip.h", "losses/contrastive/dcl.h", "losses/contrastive/info_nce.h",
               "losses/contrastive/memory_bank.h", "losses/contrastive/nt_xent.h", "losses/contrastive/siglip.h",
               "losses/contrastive/supcon.h", "losses/statistics/barlow_twins.h", "losses/statistics/koleo.h",
               "losses/statistics/sigreg.h", "losses/statistics/tico.h", "losses/statistics/vicreg.h", "losses/assignment/dino.h",
               "losses/assignment/msn.h", "losses/assignment/sinkhorn.h", "losses/assignment/swav.h", "losses/metrics/cross_entropy.h",
               "losses/metrics/regression_metrics.h", "losses/metrics/structural_similarity.h"],
    "quantizers": ["losses/quantizers/quantizer.h", "losses/quantizers/codebook/codebook.h", "losses/quantizers/vector_quantize.h",
                   "losses/quantizers/sim_vq.h", "losses/quantizers/finite_scalar.h", "losses/quantizers/lookup_free.h",
                   "losses/quantizers/binary_spherical.h", "losses/quantizers/residual.h", "losses/quantizers/residual_finite_scalar.h",
                   "losses/quantizers/grouped_residual.h"],
}
# Headers whose structs and enumerations others take.
beside = ["collectives/call.h", "engine/tape/placement.h", "losses/quantizers/codebook/rotation.h"]
# Written by hand, or of no use without C++.
left_out = {"announce", "collective_result", "expect_placement", "has_placements", "text", "record_unary", "activate", "activate_fused", "with_placements", "nothing_like", "reduction_of_nothing", "run_ranks", "Var",
            "Parameter", "YX", "Dino.options", "Communicator.Communicator", "Communicator.split", "Communicator.duplicate",
            "Communicator.partition", "Communicator.job_groups", "Communicator.description", "Communicator.choices", "Communicator.busy_with",
            "Communicator.go_on", "Communicator.allocate_shown", "Communicator.allocate_common", "Quantizer.Quantizer",
            "ResidualQuantizer.ResidualQuantizer", "ResidualQuantizer.quantize", "GroupedResidual.GroupedResidual", "Activation", "Transpose"}
renamed = {"operator()": "__call__", "from": "source"}
plain = re.compile(r"const |&$")


def python_name(name):
    name = renamed.get(name, name)
    return name + "_" if keyword.iskeyword(name) else name


def doc(*parts):
    text = "\n\n".join(part.strip() for part in parts if part and part.strip())
    return f', R"doc({text})doc"' if text else ""


class Writer:
    def __init__(self, root, module):
        self.module, self.lines = module, []
        self.declared = {path: declared_in(root / path) for path in (*modules[module], *beside)}
        everything = [x for found, _ in self.declared.values() for x in found]
        self.groups = {x.name: x for x in everything if isinstance(x, Group)}
        self.choices = {x.name: x for x in everything if isinstance(x, Choice)}

    def options_of(self, parameter):
        kind = plain.sub("", parameter.type).strip()
        return self.groups.get(kind) if kind.endswith("Options") else None

    def flattened(self, group, path):
        """The members of an Options struct, and of those in it: the member's place in C++, and itself."""
        for member in group.members:
            inner = self.options_of(member)
            if inner:
                yield from self.flattened(inner, f"{path}.{member.name}")
            else:
                yield f"{path}.{member.name}", member, member.default in {other.name for other in group.members}

    def function(self, function, of=None, about=""):
        """The parameters that Python sees, those of C++, and what is done before the call."""
        before, passed, seen, keywords = [], [], [], []
        for p in function.parameters:
            kind = plain.sub("", p.type).strip()
            options = self.options_of(p)
            name = python_name(p.name)
            if kind == "Site":
                before.append("const Site site = here();")
                passed.append("site")
            elif kind == "Device":
                passed.append("Device::cpu")
            elif options:
                before.append(f"{kind} {p.name}{{}};")
                passed.append(p.name)
                for place, member, computed in self.flattened(options, p.name):
                    keywords.append(self.option(place, member, computed, before))
            elif p.default == "{}":
                value = re.sub(r"^const |&$", "", p.type)
                seen.append((f"const std::optional<{value}>& {name}", f'nb::arg("{name}") = nb::none()'))
                passed.append(f"{name} ? *{name} : {value}{{}}")
            else:
                value = {"std::span<const Var>": "const std::vector<Var>&"}.get(p.type, p.type)
                given = f" = {p.default}" if p.default else ""
                seen.append((f"{value} {name}", f'nb::arg("{name}"){given}'))
                passed.append(name)
        types = [kind for kind, _ in (*seen, *keywords)]
        arguments = [argument for _, argument in seen] + (["nb::kw_only()"] if keywords else []) + [argument for _, argument in keywords]
        before.append("const nb::gil_scoped_release aside;")
        return types, passed, before, "".join(f", {each}" for each in arguments) + doc(about, function.comment)

    @staticmethod
    def option(place, member, computed, before):
        name = python_name(member.name)
        if computed or member.default in ("{}", "std::nullopt"):
            kind = re.sub(r"^std::optional<(.*)>$", r"\1", member.type)
            before.append(f"if ({name}) {place} = *{name};" if not computed else f"{place} = {name} ? *{name} : {member.default};")
            return f"const std::optional<{kind}>& {name}", f'nb::arg("{name}") = nb::none()'
        before.append(f"{place} = {name};")
        given = f" = {member.default}" if member.default else ""
        return f"{member.type} {name}", f'nb::arg("{name}"){given}'

    def free(self, function, about):
        types, passed, before, rest = self.function(function, about=about)
        call = f"{function.name}({', '.join(passed)})"
        self.lines.append(f'  module.def("{python_name(function.name)}", []({", ".join(types)}) {{ {" ".join(before)} return {call}; }}{rest});')

    def group(self, group, about):
        base = f", {group.base}" if group.base and group.base != "Layer" else ""
        self.lines.append(f'  nb::class_<{group.name}{base}>(module, "{group.name}"{doc(about, group.comment)})')
        constructed = False
        for function in group.functions:
            if f"{group.name}.{function.name}" in left_out or any(p.type == "Tensor&" for p in function.parameters):
                continue
            types, passed, before, rest = self.function(function)
            if function.name == group.name:
                constructed = True
                made = f"new (self) {group.name}({', '.join(passed)});"
                self.lines.append(f'      .def("__init__", []({", ".join([f"{group.name}* self", *types])}) {{ {" ".join(before)} {made} }}{rest})')
                continue
            kept = ", nb::rv_policy::reference_internal" if "Parameter*" in function.result else ""
            self.lines.append(f'      .def("{python_name(function.name)}", []({", ".join([f"{group.name}& self", *types])}) '
                              f'{{ {" ".join(before)} return self.{function.name}({", ".join(passed)}); }}{kept}{rest})')
        members = [m for m in self.all_members(group) if f"{group.name}.{m.name}" not in left_out]
        if not constructed and not group.functions and all(m.default for m in members):
            values = ", ".join(f"{m.type} {m.name}" for m in members)
            sets = " ".join(f"self->{m.name} = {m.name};" for m in members)
            arguments = ", ".join(f'nb::arg("{m.name}")' + (f" = {m.type}{m.default}" if m.default.startswith("{") else f" = {m.default}") for m in members)
            self.lines.append(f'      .def("__init__", []({group.name}* self, {values}) {{ new (self) {group.name}(); {sets} }}, nb::kw_only(), {arguments})')
        self.lines += [f'      .def_ro("{python_name(m.name)}", &{group.name}::{m.name})' for m in members]
        self.lines[-1] += ";"

    def all_members(self, group):
        return (self.all_members(self.groups[group.base]) if group.base in self.groups else []) + group.members

    def write(self):
        for path in modules[self.module]:
            found, about = self.declared[path]
            told = about if self.module in ("losses", "quantizers") else ""
            for x in found:
                if x.name in left_out or isinstance(x, Choice) or isinstance(x, Group) and x.name.endswith("Options"):
                    continue
                if isinstance(x, Function):
                    if any(p.type == "Tensor&" or "initializer_list" in p.type for p in x.parameters):
                        continue
                    self.free(x, told)
                else:
                    self.group(x, told if x.functions else "")
        included = [f'#include "weft/{path}"' for path in (*modules[self.module], *beside)]
        names = [f'WEFT_PYTHON_CHOICE({x.name}, "{", ".join(x.names)}", "typing.Literal[{", ".join(map(repr, x.names))}]")'
                 for x in self.choices.values() if x.name not in left_out and any(re.search(rf"\b{x.name}\b", line) for line in self.lines)]
        return "\n".join(["// Written by python/engine/bind.py.", *included, '#include "python/engine/casters.h"', '#include "python/engine/engine.h"', *names,
                          "", "namespace weft::python {", "", f"void add_{self.module}(nb::module_& module) {{", *self.lines, "}", "",
                          "}  // namespace weft::python", ""])


def main():
    root, module, output = sys.argv[1:]
    pathlib.Path(output).write_text(Writer(pathlib.Path(root), module).write())


main()
