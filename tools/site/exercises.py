# SPDX-License-Identifier: Apache-2.0
"""Exercises inside the derivations: under each picture of a collective that the page of exercises has, that page, which is
loaded when it is opened."""
import html
import pathlib
import re
import urllib.parse

from docutils import nodes

import pages

page = "exercises.html"
derivations = "docs/collectives"


def collectives():
    """Those that the page of exercises has, and those of them with a root."""
    script = (pages.root / "tools/web/page/matrix.js").read_text()
    listed = re.search(r"what_forward_does = \{(.*?)\};", script, re.S)[1]
    return re.findall(r"^  (\w+):", listed, re.M), re.findall(r'"(\w+)"', re.search(r"rooted = (.*)", script)[1])


def addresses(picture):
    """Of the exercises that a picture is about: `all_gather uneven`, `scan, exscan`."""
    known, rooted = collectives()
    for part in picture.split(", "):
        name, *details = part.split()
        if name in known and set(details) <= {"sum", "uneven"}:
            asked = {"collective": name, "ranks": 3, "uneven": str("uneven" in details).lower(), "root": int(name in rooted),
                     "seed": 0}
            yield name, f"{page}#{urllib.parse.urlencode(asked)}"


def exercise(name, address):
    return (f'<details class="exercise" ontoggle="const page = this.lastChild; page.src ||= page.dataset.src">'
            f'<summary>Try it: what comes back through <code>{name}</code>?</summary>'
            f'<iframe title="An exercise: {name}" data-src="../{html.escape(address)}"></iframe></details>')


def add_exercises(app, doctree, document):
    there = document == derivations and pathlib.Path(app.outdir, page).is_file()
    for mark in [node for node in doctree.findall(nodes.comment) if "picture" in node]:
        shown = [exercise(name, address) for name, address in addresses(mark["picture"]) if there]
        mark.replace_self([nodes.raw("", each, format="html") for each in shown])


def setup(app):
    app.connect("doctree-resolved", add_exercises)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
