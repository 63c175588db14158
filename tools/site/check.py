#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the pages of the site: every link and anchor leads somewhere, nothing is loaded from a network, every page can
be reached from the first, and what a term leads to is its definition.

    tools/site/check.py FOLDER
"""
import html.parser
import pathlib
import re
import sys
import urllib.parse

loaded = {("img", "src"), ("script", "src"), ("iframe", "src"), ("iframe", "data-src"), ("link", "href"), ("source", "src")}
leading = loaded | {("a", "href"), ("form", "action")}
network = re.compile(r"(https?:)?//")


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.terms = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given.get("id"), given.get("name") if tag == "a" else None}
        self.links += [(tag, given[name]) for kind, name in leading if kind == tag and given.get(name)]
        if tag == "a" and "term" in (given.get("class") or "").split():
            self.terms.append((given["href"], given.get("title")))


class Site:
    def __init__(self, folder):
        self.folder, self.complaints = folder, []
        self.pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}

    def complain(self, path, what):
        self.complaints.append(f"{path.relative_to(self.folder)}: {what}")

    def target(self, path, link):
        """(file, anchor)"""
        parts = urllib.parse.urlsplit(link)
        file = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
        return file, urllib.parse.unquote(parts.fragment)

    def check_links(self, path):
        for tag, link in self.pages[path].links:
            if network.match(link):
                if tag not in ("a", "form"):
                    self.complain(path, f"loads {link} from a network")
                continue
            if link.startswith(("mailto:", "data:")):
                continue
            file, anchor = self.target(path, link)  # of the page of exercises it is what is shown
            if not file.is_file():
                self.complain(path, f"there is no {link}")
            elif tag == "a" and anchor and file in self.pages and file.name != "exercises.html" and anchor not in self.pages[file].anchors:
                self.complain(path, f"there is no anchor {link}")

    def check_terms(self, path):
        for link, definition in self.pages[path].terms:
            _, anchor = self.target(path, link)
            if not anchor.startswith("term-") or not definition:
                self.complain(path, f"{link} is no definition")

    def check_styles(self):
        for path in self.folder.rglob("*.css"):
            for found in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]*)", path.read_text()):
                self.complain(path, f"loads {found} from a network")

    def check_reached(self):
        reached, left = set(), [self.folder / "index.html"]
        while left:
            path = left.pop()
            if path not in reached and path in self.pages:
                reached.add(path)
                left += [self.target(path, link)[0] for _, link in self.pages[path].links if not network.match(link)]
        for path in self.pages.keys() - reached:
            self.complain(path, "no link leads here from index.html")

    def check(self):
        for path in self.pages:
            self.check_links(path)
            self.check_terms(path)
        self.check_styles()
        self.check_reached()


def main():
    site = Site(pathlib.Path(sys.argv[1]).resolve())
    site.check()
    links = sum(len(page.links) for page in site.pages.values())
    terms = sum(len(page.terms) for page in site.pages.values())
    print(f"{len(site.pages)} pages, {links} links, {terms} of them to terms", *site.complaints, sep="\n")
    return 1 if site.complaints or not terms else 0


if __name__ == "__main__":
    sys.exit(main())
