#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows CONTRIBUTING's recipes for an elementwise op and for a linear collective: writes the files with their
additions to a folder, from which recipe.cpp and collective_recipe.cpp include them. It also adds a second op, wrong_erf,
with a wrong sign in its second derivative, and wrong_neighbor_sum, which leaves out one side.

    tests/documents/recipe.py ROOT FOLDER STAMP
"""
import pathlib
import re
import sys

from blocks import Document


def wrong(text):
    """The same, with the mistake that the recipe proposes to try."""
    text = re.sub(r"(ddf\(T x\) const \{ return )(.*);", r"\1-(\2);", text)
    text = text.replace("reader - source == 1 || source - reader == 1", "reader - source == 1")
    text = text.replace("NeighborSum", "WrongNeighborSum").replace("neighbor_sum", "wrong_neighbor_sum")
    return re.sub(r"(?<!maths::)\berf", "wrong_erf", text.replace("Erf", "WrongErf"))


def added(name, text, addition):
    """A file with the recipe's additions."""
    both = addition + "\n" + wrong(addition) + "\n"
    if name == "engine/kernels/scalar_ops.h":
        names = "".join(f" X({found})" for found in re.findall(r"struct (\w+) :", both))
        text, changed = re.subn(r"(#define WEFT_UNARY_OPS\(X\)(?:.*\\\n)*.*)", r"\1" + names, text)
        assert changed == 1
        at = text.index("// clang-format off\n#define WEFT_UNARY_OPS")
    else:
        at = text.rindex("}  // namespace weft")
    return text[:at] + both + text[at:]


def main():
    root, folder, stamp = map(pathlib.Path, sys.argv[1:])
    for block in Document(root, "CONTRIBUTING.md").blocks:
        if block.argument.startswith("into "):
            name = block.argument.removeprefix("into ")
            at = folder.parent / name if name.startswith("tests/") else folder / name  # as it is included
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(added(name, (root / name).read_text(), "\n".join(block.lines)))
    stamp.write_text("")


main()
