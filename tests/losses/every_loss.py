#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every loss in losses/ is compared with one process with the whole batch, that is called by a
LossCase. Prints the others as file:line.

    tests/losses/every_loss.py [ROOT]
"""
import pathlib
import re
import sys

# Parts of losses, which are checked within them.
parts = {"Quantizer", "counted_once", "mean_over_ranks", "no_loss", "unevenness", "with_decoder"}

arguments = r"\(((?:[^;{}]|\{\})*)\)"
function = re.compile(r"^(?:Var|Quantized) (\w+)" + arguments + ";", re.M)
call_operator = re.compile(r"^  (?:Var|Quantized) (?:operator\(\)|apply)" + arguments + r"[^;{]*[;{]", re.M)
class_head = re.compile(r"^(?:class|struct) (\w+)", re.M)


def losses_of(header):
    """Yields (line number, name) of every function and class that computes a loss over ranks."""
    for found in function.finditer(header):
        if "Communicator&" in found[2]:
            yield header.count("\n", 0, found.start()) + 1, found[1]
    for found in call_operator.finditer(header):
        if "Communicator&" in found[1] and "= 0" not in found[0]:
            name = [head[1] for head in class_head.finditer(header, 0, found.start())][-1]
            yield header.count("\n", 0, found.start()) + 1, name


def complaints(files):
    """Yields a message for every loss without a LossCase. `files` maps names to texts."""
    cases = "\n".join(text[text.index("LossCase"):] for name, text in files.items()
                      if name.endswith(".cpp") and "LossCase" in text)
    for name, text in files.items():
        if "DistributedCase" in text and pathlib.Path(name).stem != "loss_case":
            line = text.count("\n", 0, text.index("DistributedCase")) + 1
            yield f"{name}:{line}: no test compares a DistributedCase with one process; register a LossCase"
        for line, loss in losses_of(text) if name.endswith(".h") else ():
            if loss not in parts and not re.search(rf"(?<!Var )\b{loss}\b\s*(?:\w+)?[({{]", cases):
                yield f"{name}:{line}: no LossCase calls {loss}, so no test compares it with one process"


def expect_to_notice():
    """Checks this program: it finds losses without a case."""
    header = ("Var mine(const Var& x, Communicator& comm);\n"
              "class Yours {\n  Var operator()(const Var& x, Communicator& comm);\n};\n"
              "class Ours : public Quantizer {\n  Quantized apply(const Var& x, Communicator& comm) override;\n};\n")
    called = "const LossCase all{[](auto& x, auto& comm) { return mine(x, comm) + Yours()(x, comm) + Ours()(x); }};"
    assert list(complaints({"losses/a.h": header, "losses/a.cpp": called})) == []
    for file, count in (("Var mine(const Var& x, Communicator& comm) { return x; }", 3),
                        (called.replace("mine", "own_mine"), 1), (called.replace("Yours", "Their"), 1),
                        (called.replace("LossCase", "DistributedCase"), 4)):
        found = list(complaints({"losses/a.h": header, "losses/a.cpp": file}))
        assert len(found) == count, (file, found)


def main():
    expect_to_notice()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    files = {str(path.relative_to(root)): path.read_text() for folder in ("losses", "tests/cases/losses")
             for path in sorted((root / folder).rglob("*")) if path.suffix in (".h", ".cpp")}
    found = list(complaints(files))
    count = sum(1 for name, text in files.items() if name.endswith(".h") for _ in losses_of(text))
    print("\n".join(found) or f"{count} losses and their parts are compared with one process")
    return 1 if found else 0


sys.exit(main())
