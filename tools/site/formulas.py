# SPDX-License-Identifier: Apache-2.0
"""x_r with a subscript, in formulas and in the text. In a formula, what is right of a subscript stays in its column."""
import html
import re

from docutils import nodes

subscript = re.compile(r"(?<!\w)(d?\w\u0304?)_(?:\{([^{}]*)\}|\(([^()]*)\)|(\w+))")


def divided(text):
    """[(what is before a subscript, the subscript, how many characters shorter it is)], and the rest."""
    at, found = 0, []
    for match in subscript.finditer(text):
        inside = match[2] or match[3] or match[4]
        found.append((text[at:match.end(1)], inside, len(match[0]) - len(match[1]) - len(inside)))
        at = match.end()
    return found, text[at:]


def formula_line(text):
    parts, rest = divided(text)
    result, saved, equals = "", 0, False

    def padded(text):
        nonlocal saved, equals
        gap = re.search(r" {2,}" if equals else r" {2,}| (?==)", text) if saved else None
        if gap:
            text, saved = text[:gap.end()] + " " * saved + text[gap.end():], 0
        equals = equals or "=" in text
        return html.escape(text)
    for before, inside, shorter in parts:
        result += f"{padded(before)}<sub>{html.escape(inside)}</sub>"
        saved += shorter
    return result + padded(rest)


def formula(lines):
    return f'<div class="highlight"><pre>{chr(10).join(map(formula_line, lines))}</pre></div>'


def lower_in_text(app, doctree, document):
    for node in list(doctree.findall(nodes.Text)):
        parts, rest = divided(node.astext())
        if parts and not isinstance(node.parent, (nodes.literal, nodes.literal_block, nodes.raw)):
            new = [each for before, inside, _ in parts for each in (nodes.Text(before), nodes.subscript("", inside))]
            node.parent.replace(node, [*new, nodes.Text(rest)])


def setup(app):
    app.connect("doctree-resolved", lower_in_text)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
