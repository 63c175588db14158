# SPDX-License-Identifier: Apache-2.0
"""The documents, which are the pages of the site, and the files that they link to."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(root / "tests/documents"))
from blocks import Document, documents  # noqa: E402

link = re.compile(r"\]\((?!http)([^)\s#]+)(#[^)\s]*)?\)")


def linked_file(document, target):
    """What a link in a document leads to, relative to the root, unless it is another document."""
    path = (root / document).parent / target
    return path.resolve().relative_to(root) if path.suffix != ".md" and path.exists() else None


def file_of(kind, argument):
    """The file that a block is about, relative to the root."""
    word = argument.split()[-1] if argument else ""
    name = f"examples/{word}.cpp" if kind in ("edit", "output") else word
    return pathlib.Path(name) if name and (root / name).is_file() else None


def linked_files():
    """All files that documents link to or quote, and those of linked folders."""
    found = set()
    for document in documents(root):
        found |= {file for block in Document(root, document).blocks if (file := file_of(block.kind, block.argument))}
        for match in link.finditer((root / document).read_text()):
            path = linked_file(document, match[1])
            if path:
                inside = (each for each in (root / path).glob("*") if each.is_file() and each.suffix != ".md")
                found |= {path, *(each.relative_to(root) for each in inside)}
    return sorted(found)
