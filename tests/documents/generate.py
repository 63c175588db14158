#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the documents' blocks as C++ for test_documents.cpp: functions, messages and pictures; and the block with a
main() as a program.

    tests/documents/generate.py ROOT BLOCKS.cpp PROGRAM.cpp
    tests/documents/generate.py --list ROOT                   lists the documents
"""
import json
import math
import pathlib
import re
import sys

from blocks import all_documents, documents, is_message, where

# Comments that are checked:
a_value = re.compile(r"(\s*)(?![^;]* = )(.+);\s*// ((?:f32|f64|bf16|i64|u8) \(.*)")  # x;  // f32 (2) on cpu [1, 2]
a_shape = re.compile(r"(\s*const \w+ (\w+) = .+;)\s*// (\(\d*(?:, \d+)*\))(?:,.*)?")  # const Var x = y;  // (2, 3), ...


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def page_of(document):
    return re.sub(r"\W", "_", document.removesuffix(".md").lower())


def checked(line, place):
    """A line of a snippet, with a value in its comment turned into a check."""
    if line.strip() == "...":
        return ""
    if found := a_value.fullmatch(line):
        return f"{found[1]}expect_stated({quoted(place)}, text({found[2]}), {quoted(found[3])});"
    if found := a_shape.fullmatch(line):
        return f"{found[1]} expect_stated({quoted(place)}, text({found[2]}.shape()), {quoted(found[3])});"
    return line


def code(block):
    document, line = block.place
    lines = [checked(text, f"{document}:{line + i + 1}") for i, text in enumerate(block.lines)]
    return "\n".join([f'#line {line + 1} "{document}"', *lines])


class Result:
    def __init__(self, root):
        self.root, self.complaints = root, []
        self.pages = pathlib.Path(__file__).with_name("pages.h").read_text()
        self.functions, self.snippets, self.messages, self.pictures, self.programs = [], [], [], [], []

    def complain(self, block, what):
        self.complaints.append(f"{where(block.place)}: {what}")

    def add(self, block):
        if block.kind == "cpp":
            self.add_code(block)
        elif block.kind == "message":
            self.messages.append((where(block.place), " ".join(" ".join(block.lines).split()), True))
        elif block.kind == "picture":
            self.add_picture(block)

    def add_code(self, block):
        page, name = page_of(block.place[0]), f"Block{block.place[1]}"
        ranks = re.fullmatch(r"on (\d+) ranks?", block.argument)
        if f"namespace {page} " not in self.pages and not (self.root / block.argument).is_file():
            self.complain(block, f"its code has no page in tests/documents/pages.h, namespace {page}")
        elif block.argument == "program":
            includes = ["#include <iostream>", '#include "every_header.h"']
            self.programs += [*includes, "using namespace weft;", code(block), ""]
        elif block.argument == "declarations":
            self.functions.append(f"namespace weft::documents::{page} {{\n{code(block)}\n}}")
        elif not block.argument or ranks:
            function = f"struct {name} : Page {{\nusing Page::Page;\nvoid run() {{\n{code(block)}\n}}\n}};"
            self.functions.append(f"namespace weft::documents::{page} {{\n{function}\n}}")
            on = [int(ranks[1])] if ranks else [1, 2, 3]
            self.snippets.append((where(block.place), on, f"run<{page}::{name}>"))
        elif not (self.root / block.argument.removeprefix("into ")).is_file():
            self.complain(block, f"'{block.argument}' is neither a kind of code (tests/documents/blocks.py) nor a file")

    def add_picture(self, block):
        """Cells are two spaces apart; `forward` and `backward` label the columns, `(root)` a rank."""
        def cells(line):
            return [cell for cell in re.split(r"\s{2,}", line.strip()) if cell not in ("forward", "backward", "(root)")]
        columns, rows = cells(block.lines[0]), [cells(line)[1:] for line in block.lines[1:]]
        for row in rows:
            if len(row) == len(columns) + 1:  # the factors of the last number
                made_of = [math.prod(map(float, term.split("·"))) for term in row.pop().split(",")]
                if made_of != [float(number) for number in row[-1].strip("[]").split(",")]:
                    self.complain(block, f"{row[-1]} is {made_of}")
        self.pictures.append((where(block.place), block.argument, columns, rows))

    def text(self):
        def row(*values):
            return f"{{{', '.join(map(str, values))}}}"

        def table(of, name, rows):
            return [f"const std::vector<{of}> {name} = {{", *(f"    {row}," for row in rows), "};"]

        def strings(values):
            return row(*map(quoted, values))
        return "\n".join([
            "// Made from the documents by tests/documents/generate.py.", '#include "tests/documents/pages.h"',
            *self.functions, '#line 1 "blocks.cpp"', "namespace weft::documents {",
            *table("std::string", "complaints", map(quoted, self.complaints)),
            *table("Snippet", "snippets", (row(quoted(place), row(*on), run) for place, on, run in self.snippets)),
            *table("Message", "messages", (row(quoted(place), quoted(text), str(whole).lower())
                                           for place, text, whole in self.messages)),
            *table("Picture", "pictures", (row(quoted(place), quoted(name), strings(columns), row(*map(strings, rows)))
                                           for place, name, columns, rows in self.pictures)),
            "}  // namespace weft::documents", ""])


def main():
    if sys.argv[1] == "--list":
        return print("\n".join(documents(pathlib.Path(sys.argv[2]))))
    root, blocks, program = map(pathlib.Path, sys.argv[1:])
    result = Result(root)
    for document in all_documents(root):
        result.complaints += document.complaints
        for block in document.blocks:
            result.add(block)
        for inline in document.inline():
            if is_message(inline.text):
                result.messages.append((where(inline.place), inline.text, False))
    blocks.write_text(result.text())
    program.write_text("\n".join(result.programs))


main()
