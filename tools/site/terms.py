# SPDX-License-Identifier: Apache-2.0
"""The first use of a glossary's term on a page leads to its definition, and shows it."""
import re

from docutils import nodes

import pages
from reading import definitions, glossary

not_in = (nodes.literal, nodes.literal_block, nodes.reference, nodes.title, nodes.raw, nodes.thead)


def anchor(term):
    return "term-" + re.sub(r"\W+", "-", term).strip("-").lower()


def pattern(term):
    """Names of placements begin with a capital letter; other terms may begin a sentence. Ranks also share memory."""
    first = term[0] if term[0].isupper() else f"[{term[0].upper()}{term[0]}]"
    noun = r"(?:^|(?<=\ba )|(?<=\bits )|(?<='s )|(?<=\bthe ))" if term == "share" else ""
    return re.compile(rf"\b{noun}{first}{re.escape(term[1:])}s?\b")


def add_anchors(doctree):
    """An id for each row of the glossary."""
    known = {term: anchor(term) for term in definitions(pages.root)}
    for row in doctree.findall(nodes.row):
        if row[0].astext() in known:
            row["ids"].append(known[row[0].astext()])


def linked(text, matches, address):
    """A text with links in place of the matches: [(match, term, definition)]."""
    at = 0
    for match, term, definition in sorted(matches, key=lambda each: each[0].start()):
        if match.start() < at:
            continue
        yield nodes.Text(text[at:match.start()])
        yield nodes.reference("", match[0], refuri=f"{address}#{anchor(term)}", reftitle=f"{term}: {definition}",
                              internal=True, classes=["term"])
        at = match.end()
    yield nodes.Text(text[at:])


def link_terms(app, doctree, document):
    if f"{document}.md" == glossary:
        return add_anchors(doctree)
    address = app.builder.get_relative_uri(document, glossary.removesuffix(".md"))
    left = {term: (pattern(term), meaning) for term, meaning in definitions(pages.root).items()}
    for node in list(doctree.findall(nodes.Text)):
        if any(isinstance(parent, not_in) for parent in ancestors(node)):
            continue
        text, found = node.astext(), []
        for term, (words, meaning) in left.items():
            if match := words.search(text):
                found.append((match, term, meaning))
        if found:
            new = list(linked(text, found, address))
            node.parent.replace(node, new)
            for each in new:
                if isinstance(each, nodes.reference):
                    left.pop(each["reftitle"].partition(":")[0])


def ancestors(node):
    while node := node.parent:
        yield node


def setup(app):
    app.connect("doctree-resolved", link_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
