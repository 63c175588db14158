# SPDX-License-Identifier: Apache-2.0
"""In which order readers meet the documents, and which terms they are told: those of the glossary in docs/architecture.md
and of the field. For the check that a learner is told every term first, and for the site (tools/site)."""
import re

from blocks import Document, documents

front = "README.md"
in_order = {
    "Learning and teaching": ["docs/course.md", "docs/collectives.md", "docs/teaching.md", "examples/README.md",
                              "exercises/README.md"],
    "Training": ["docs/tour.md", "docs/training.md", "docs/losses.md", "docs/data.md", "docs/results.md",
                 "docs/checkpoints.md", "docs/export.md", "docs/manifest.md", "docs/clusters.md", "docs/faults.md"],
    "Another framework": ["docs/python.md", "docs/verify.md", "docs/debugging.md"],
    "The code": ["docs/walk.md", "docs/architecture.md", "docs/cards.md", "engine/ops/README.md",
                 "collectives/transports/README.md", "CONTRIBUTING.md"],
}
learning = [*in_order["Learning and teaching"], "docs/tour.md", "docs/training.md", "docs/losses.md"]
glossary = "docs/architecture.md"
# What learners must be told beside the glossary's terms, and what in the glossary is also plain English.
of_the_field = {"rank", "node", "backward"}
plain_english = {"block", "board", "call", "case", "constant", "division", "exact", "expose", "fault", "fold", "movement",
                 "observer", "origin", "part", "pass", "place", "portion", "present", "query", "site", "slice", "started",
                 "subtree", "term", "unit", "unknown", "walk"}


def in_sections(root):
    """in_order, with every other document at the end."""
    named = {front, *sum(in_order.values(), [])}
    return {**in_order, "More": [name for name in documents(root) if name not in named]}


def definitions(root):
    """{term: meaning} of the glossary, without what is also plain English."""
    table = (root / glossary).read_text().partition("## Glossary")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w ]+) \| (.*) \|$", table, re.M)
    return {term: meaning for term, meaning in rows if term.lower() not in plain_english}


def prose(root, name):
    """Without headings and blocks; a course is told from its first lesson on."""
    lines = ["" if line.startswith("#") else line for line in Document(root, name).text]
    lesson = [at for at, line in enumerate(Document(root, name).text) if line.startswith("## 1")]
    return "\n".join([""] * lesson[0] + lines[lesson[0]:] if lesson else lines)


def terms_in_order(root):
    """For each term that a learner meets: the page, the line, the term, and whether it was told by then. A term is told
    where it is in italics or bold, begins a row of a table, or is a link to the glossary."""
    told = set()
    for name in learning:
        text = prose(root, name)
        read = re.sub(r"(?<=\])\([^)]*\)", lambda link: " " * len(link[0]), text)  # without what links lead to
        for term in sorted({*map(str.lower, definitions(root)), *of_the_field} - told):
            used = re.search(rf"\b{term}s?\b(?!\.\w)", read, re.I)  # not a file's name
            telling = re.search(rf"\*{term}s?\*|\[{term}s?\]\([^)]*#glossary\)|^\| (\w \| )?{term} ", text, re.I | re.M)
            if used:
                told.add(term)
                yield name, text.count("\n", 0, used.start()) + 1, term, telling and telling.start() <= used.start()
