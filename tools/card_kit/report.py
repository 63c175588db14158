# SPDX-License-Identifier: Apache-2.0
"""The page of a report of card_kit/run."""
from html import escape

style = """
:root { color-scheme: light dark; --line: #8885; --good: #18794e; --bad: #c62a2f }
@media (prefers-color-scheme: dark) { :root { --good: #4cc38a; --bad: #ff8589 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
div { overflow-x: auto }
.passed { color: var(--good) } .failed, .missed { color: var(--bad); font-weight: 600 }
pre { overflow-x: auto; font-size: 13px; border-left: 3px solid var(--line); padding-left: .8rem }
"""


def table(head, rows):
    cells = lambda kind, row: "".join(f"<{kind}>{cell}</{kind}>" for cell in row)
    return f"<div><table><tr>{cells('th', head)}</tr>" + "".join(f"<tr>{cells('td', row)}</tr>" for row in rows) + "</table></div>"


def shown(state):
    return f'<span class="{escape(state.split()[0])}">{escape(state)}</span>'


def ratio(figure):
    value = figure.get("value")
    value = value.get("median") if isinstance(value, dict) else value
    if value is None:
        return ""
    bound = f" ({figure['sense']} {figure['bound']:g})" if figure.get("sense") else ""
    return f"{value:.3g}{escape(bound)}"


def row_of(figure):
    held = {True: shown("passed"), False: shown("missed")}.get(figure.get("holds") if figure.get("sense") else None, "")
    return [escape(str(figure.get("what", ""))), escape(figure.get("ours", "")), escape(figure.get("theirs", "")), ratio(figure), held]


def page(report):
    of_parts = [[escape(part["name"]), shown(part["state"]), f"{part['seconds']:g} s"] for part in report["parts"]]
    more = ""
    for part in report["parts"]:
        if part["figures"] or part["said"]:
            more += f"<h2>{escape(part['name'])}</h2>"
        if part["figures"]:
            more += table(["what", "Weft", "beside it", "times as fast", ""], map(row_of, part["figures"]))
        if part["said"]:
            more += f"<pre>{escape(chr(10).join(part['said']))}</pre>"
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>Weft on a card</title><style>{style}</style><h1>Weft on a card</h1>"
            f"<p>{'<br>'.join(map(escape, report['cards']))}<br>Weft {escape(report['version'])}</p>"
            f"{table(['part', 'state', 'time'], of_parts)}{more}</html>\n")
