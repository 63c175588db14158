# SPDX-License-Identifier: Apache-2.0
"""A page for each source file and folder that a document links to, since the repository is not beside the site."""
import html
import pathlib
import re

from docutils import nodes

import pages

scheme = "source:"
lexers = {".cpp": "cpp", ".h": "cpp", ".cu": "cpp", ".cuh": "cpp", ".py": "python", ".toml": "toml"}


def mark_links(app, document, text):
    """Before the document is parsed, since MyST takes a link to a file for a download."""
    name = str(app.env.doc2path(document, base=False))

    def marked(match):
        path = pages.linked_file(name, match[1])
        return f"]({scheme}{path})" if path else match[0]
    text[0] = pages.link.sub(marked, text[0])


def page_name(path):
    return f"source/{path}"


def resolve_links(app, doctree, document):
    for node in doctree.findall(nodes.reference):
        if node.get("refuri", "").startswith(scheme):
            node["refuri"] = app.builder.get_relative_uri(document, page_name(node["refuri"].removeprefix(scheme)))


def body(app, path):
    title = f"<h1>{html.escape(str(path))}</h1>\n"
    if (pages.root / path).is_dir():
        inside = [each for each in pages.linked_files() if each.parent == path]
        addresses = [app.builder.get_relative_uri(page_name(path), page_name(each)) for each in inside]
        items = [f'<li><a href="{address}">{each.name}</a></li>' for address, each in zip(addresses, inside)]
        return f"{title}<ul>{''.join(items)}</ul>"
    text = (pages.root / path).read_text()
    return title + app.builder.highlighter.highlight_block(text, lexers.get(path.suffix, language_of(text)))


def language_of(text):
    """Of a script without an ending, by its first line."""
    found = re.match(r"#!.*\b(bash|python)", text)
    return found[1] if found else "none"


def source_pages(app):
    for path in pages.linked_files():
        yield page_name(path), {"title": pathlib.Path(path).name, "body": body(app, path)}, "page.html"


def setup(app):
    app.connect("source-read", mark_links)
    app.connect("doctree-resolved", resolve_links)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
