# SPDX-License-Identifier: Apache-2.0
"""Fenced blocks of the documents' own kinds (tests/documents/blocks.py), each with its look, and a link to its file."""
import html
import pathlib

from docutils import nodes
from docutils.parsers.rst import Directive

import pages
from blocks import Document, kinds
from figures import Figure
from formulas import formula
from sources import scheme

highlighted = {"cpp": "cpp", "bash": "bash", "python": "python"}
marks = {"-": "old", "+": "new", "!": "error", "=": "printed"}
lead = {"edit": "In ", "output": "Printed by "}


def caption(kind, argument):
    """What a block is of, with a link to its file."""
    if file := pages.file_of(kind, argument):
        of = nodes.reference("", str(file), refuri=f"{scheme}{file}")
    elif kind == "output":
        of = nodes.literal("", argument.removeprefix("of "))
    else:
        return nodes.comment()
    return nodes.paragraph("", lead.get(kind, ""), of, classes=["caption"])


def edit(lines):
    marked = "\n".join(f'<span class="{marks.get(line[:1], "")}">{html.escape(line)}</span>' for line in lines)
    return f'<div class="highlight"><pre>{marked}</pre></div>'


drawn = {"edit": edit, "formula": formula}


def figure_file(document, picture):
    return f"figures/{document.split('/')[-1]}-{picture.replace(' ', '-')}.svg"


class Fence(Directive):
    optional_arguments, final_argument_whitespace, has_content = 1, True, True

    def run(self):
        kind, argument, text = self.name, " ".join(self.arguments), "\n".join(self.content)
        block = (nodes.raw("", drawn[kind](self.content), format="html") if kind in drawn else
                 nodes.literal_block(text, text, language=highlighted.get(kind, "none")))
        fence = nodes.container("", caption(kind, argument), block, classes=["fence", f"fence-{kind}"])
        return [fence, *(self.figure(argument) if kind == "picture" else [])]

    def figure(self, picture):
        """A drawing, if there is one, and a mark for the exercise below it (exercises.py)."""
        mark = nodes.comment("", "", picture=picture)
        if not (figure := Figure.of(picture, self.content)):
            return [mark]
        document = self.state.document.settings.env.docname
        file = f'<a href="{"../" * document.count("/")}{figure_file(document, picture)}">SVG</a>'
        shown = f'<figure class="matrices">{figure.svg()}<figcaption>{file}</figcaption></figure>'
        return [nodes.raw("", shown, format="html"), mark]


def write_figures(app, error):
    pathlib.Path(app.outdir, "figures").mkdir(exist_ok=True)
    for document in app.env.found_docs:
        for block in Document(pages.root, f"{document}.md").blocks:
            if block.kind == "picture" and (figure := Figure.of(block.argument, block.lines)):
                pathlib.Path(app.outdir, figure_file(document, block.argument)).write_text(figure.svg())


def setup(app):
    for kind in kinds:
        app.add_directive(kind, Fence)
    app.connect("build-finished", write_figures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
