# SPDX-License-Identifier: Apache-2.0
"""A picture of a linear collective, drawn as two matrices of blocks. All is read from the numbers of the document, which
are Weft's (tests/documents/pictures.cpp): the terms of each number tell which ranks it comes from. That the backward
matrix is the transpose of the forward one is checked before anything is drawn."""
import dataclasses
import html
import itertools
import pathlib
import re

height, label, gap, line = 50, 56, 28, 26
style = """.matrices text{font:14px system-ui,sans-serif;text-anchor:middle;fill:#222}.matrices .title{font-style:italic}
.matrices rect{fill:#8882}.matrices .zero{fill:#888}
.matrices .rank0{fill:#9cc5f0}.matrices .rank1{fill:#f5c47a}.matrices .rank2{fill:#a4d8a0}
@media(prefers-color-scheme:dark){.matrices text{fill:#ddd}}.matrices .taken{fill:#111}"""


def numbers(text):
    return None if text == "-" else [float(number) for number in text.strip("[]").split(",") if number]


def terms(total, given):
    """The fewest of the given elements, at most one of each rank, that add up to total: [(rank, element)], or None."""
    there = [[(rank, i) for i, x in enumerate(values or []) if x] for rank, values in enumerate(given)]
    if not total:
        return []
    for count in range(1, len(given) + 1):
        for ranks in itertools.combinations(there, count):
            for chosen in itertools.product(*ranks):
                if sum(given[rank][i] for rank, i in chosen) == total:
                    return list(chosen)
    return None


def matrix(results, given):
    """{((reader, element), (source, element))}, or None if some number is no sum of given ones."""
    found = set()
    for reader, values in enumerate(results):
        for e, value in enumerate(values or []):
            chosen = terms(value, given)
            if chosen is None:
                return None
            found |= {((reader, e), source) for source in chosen}
    return found


def columns_of(lines):
    """{name: [text of each rank]} of a picture."""
    def cells(text):
        return [each for each in re.split(r"\s{2,}", text.strip()) if each not in ("forward", "backward", "(root)")]
    rows = [cells(text)[1:] for text in lines[1:]]
    return dict(zip(cells(lines[0]), zip(*rows)))


@dataclasses.dataclass
class Figure:
    name: str
    given: list
    results: list
    forward: set
    cotangents: list
    returned: list
    backward: set

    @classmethod
    def of(cls, name, lines):
        """None for a picture of no linear collective, or of two."""
        columns = columns_of(list(lines))
        if list(columns) != ["x", "y", "ȳ", "x̄"] or any(re.search("[a-z]", text) for text in sum(columns.values(), ())):
            return None
        x, y, y_bar, x_bar = ([numbers(text) for text in column] for column in columns.values())
        forward, backward = matrix(y, x), matrix(x_bar, y_bar)
        if forward is None or backward is None:
            return None
        if forward != {(there, here) for here, there in backward}:
            raise ValueError(f"picture {name}: backward is not the transpose of forward")
        return cls(name, x, y, forward, y_bar, x_bar, backward)

    def svg(self):
        forward, width = drawn("y = F x", "x", self.given, "y", self.results, self.forward)
        backward, more = drawn("x̄ = F* ȳ", "ȳ", self.cotangents, "x̄", self.returned, self.backward)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" class="matrices" role="img" viewBox="0 0 {width + gap + more} '
                f'{2 * line + len(self.given) * height}"><title>{html.escape(self.name)} and its adjoint</title><style>{style}'
                f'</style>{forward}<g transform="translate({width + gap} 0)">{backward}</g></svg>')


def listed(values):
    return "" if values is None else ", ".join(f"{value:g}" for value in values)


def fitting(texts):
    return max(height, 8 * max(map(len, texts)) + 16)


def drawn(title, of_column, given, of_row, results, matrix):
    """A row for each rank that reads, a column for each rank that is read, and the results; and how wide that is."""
    def text(x, y, words, kind=""):
        return f'<text x="{x:g}" y="{y:g}" class="{kind}">{html.escape(words)}</text>'
    ranks = range(len(given))
    cells = {(reader, source): listed(given[source][i] for _, i in sorted((e, i) for (r, e), (s, i) in matrix
                                                                          if (r, s) == (reader, source)))
             for reader in ranks for source in ranks}
    width, of_results = fitting(cells.values()), fitting([*map(listed, results), "no rows"])
    end = label + len(given) * width
    parts = [text(label + len(given) * width / 2, 16, title, "title"), text(end + of_results / 2, 2 * line - 10, of_row)]
    for source in ranks:
        parts.append(text(label + (source + 0.5) * width, 2 * line - 10, of_column + chr(ord("₀") + source)))
    for reader in ranks:
        middle = 2 * line + reader * height + height / 2
        parts.append(text(label / 2, middle + 5, f"rank {reader}"))
        for source in ranks:
            taken, left = cells[reader, source], label + source * width
            parts.append(f'<rect x="{left + 2}" y="{middle - height / 2 + 2:g}" width="{width - 4}" height="{height - 4}" '
                         f'rx="6" class="{f"rank{source}" if taken else ""}"/>')
            parts.append(text(left + width / 2, middle + 5, taken or "0", "taken" if taken else "zero"))
        shown = "" if results[reader] is None else listed(results[reader]) or "no rows"
        parts.append(text(end + of_results / 2, middle + 5, shown))
    return "".join(parts), end + of_results
