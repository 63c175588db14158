# SPDX-License-Identifier: Apache-2.0
"""The front page is README.md, the sidebar lists all pages in the order of reading, and a link that shows the name of a
document's file shows its title."""
import posixpath
import re
import shutil

from docutils import nodes

from pages import root
from reading import in_sections


def add_contents(app, document, text):
    if document == app.config.root_doc:
        for caption, names in in_sections(root).items():
            listed = "\n".join(f"/{name}" for name in names)
            text[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def show_titles(app, doctree, document):
    for link in list(doctree.findall(nodes.reference)):
        if link.get("internal") and re.fullmatch(r"[\w/]+\.md", link.astext()):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(document), link["refuri"].partition("#")[0]))
            link[:] = [nodes.Text(app.env.titles[target.removesuffix(".html")].astext())]


def copy_front(app, error):
    if not error:
        shutil.copy(f"{app.outdir}/{app.config.root_doc}.html", f"{app.outdir}/index.html")


def setup(app):
    app.connect("source-read", add_contents)
    app.connect("doctree-resolved", show_titles)
    app.connect("build-finished", copy_front)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
