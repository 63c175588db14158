# SPDX-License-Identifier: Apache-2.0
"""Finds what can be wrong in the documents: fenced blocks and inline code. The tag after a fence gives the kind of
block:

    cpp                     a part of a function, run on 1, 2 and 3 ranks in the document's page (pages.h)
    cpp on 2 ranks          the same on a given number of ranks
    cpp declarations        at namespace scope
    cpp program             with a main(), run as processes; there is one
    cpp into FILE           an addition to a file in a recipe (recipe.py)
    cpp FILE                a quotation of that file; ... stands for omissions
    message                 whole messages of Weft (mistakes.cpp); ... and <name> match anything
    picture NAME            the results of collectives (pictures.cpp)
    bash                    commands
    python                  parsed; python/tests runs what the package can do
    output of COMMAND       its output, apart from numbers; of an example, also the numbers
    tree                    folders and their purposes
    formula, text           not checked
"""
import ast
import collections
import pathlib
import re

Block = collections.namedtuple("Block", "place kind argument lines")  # place: (document, line of the fence)
Inline = collections.namedtuple("Inline", "place text")

kinds = {"cpp", "message", "picture", "bash", "python", "output", "tree", "formula", "text", "edit"}


def where(place):
    return f"{place[0]}:{place[1]}"


def is_made(path):
    """Whether a folder at the top is of builds or runs."""
    return path.name in ("build", "runs") or path.name.startswith("build-")


def documents(root):
    """Every Markdown file of the project, relative to its root."""
    folders = [path for path in root.iterdir() if path.is_dir() and path.name[0] != "." and path.name != "subprojects" and
               not is_made(path)]
    found = [*root.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.md"))]
    return sorted(str(path.relative_to(root)) for path in found)


class Document:
    def __init__(self, root, name):
        self.name, self.blocks, self.text, self.complaints = name, [], [], []
        lines = (root / name).read_text().splitlines()
        at = 0
        while at < len(lines):
            fence = re.fullmatch(r"( *)```(\S*) ?(.*)", lines[at])
            if fence:
                end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == "```"), len(lines))
                self.add(at, fence, [line.removeprefix(fence[1]) for line in lines[at + 1:end]])
                self.text += [""] * (end + 1 - at)
                at = end + 1
                continue
            if re.match(r" {4,}(?![*-] |\d+\. )\S", lines[at]) and (at == 0 or not lines[at - 1].strip()):
                self.complain(at, "an indented block does not say what it is; put it between ``` fences that do")
            self.text.append(lines[at])
            at += 1

    def add(self, at, fence, lines):
        if fence[2] not in kinds:
            known = ", ".join(sorted(kinds))
            self.complain(at, f"'{fence[2]}' is no kind of block; there are {known} (tests/documents/blocks.py)")
        if fence[2] == "python":
            try:
                ast.parse("\n".join(lines))
            except SyntaxError as error:
                self.complain(at + error.lineno, f"no Python: {error.msg}")
        self.blocks.append(Block((self.name, at + 1), fence[2], fence[3], lines))

    def complain(self, at, what):
        self.complaints.append(f"{self.name}:{at + 1}: {what}")

    def inline(self):
        """Inline code, which may span lines."""
        whole = "\n".join(self.text)
        for found in re.finditer(r"(`+)(.+?)\1", whole, re.S):
            yield Inline((self.name, whole.count("\n", 0, found.start()) + 1), " ".join(found[2].split()))


def all_documents(root):
    return [Document(root, name) for name in documents(root)]


def is_message(text):
    """Whether inline code quotes a message of Weft or words from one: `watch: only floating ...`, `made of Varying`."""
    return bool(re.match(r"[a-z_]+( \d+)?( \w+)*: \w", text) or re.fullmatch(r"[A-Za-z']+( [A-Za-z0-9']+)+", text))
