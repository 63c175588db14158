#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the page of a step's tapes in a browser without a network: every op has its formula, values that should be equal and
are not are named, what is saved as SVG has what is shown of a moment, and on paper there is all of it. Needs Selenium and
Chromium; otherwise exits with 77. With a folder, it writes pictures there.

    tests/apps/lanes.py WEFT TRAIN_CONTRASTIVE [--pictures FOLDER]
"""
import argparse
import base64
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests/support"))
from browser import Browser, exit_with_complaints, expect

ranks = 3


def record(program, folder):
    subprocess.run([sys.executable, root / "tests/apps/small_data.py", folder / "data", "--train", "96", "--test", "32"], check=True)
    subprocess.run([program, "--steps", "2", "--record-step", "2", "--batch", "24", "--width", "2", "--ranks", str(ranks), "--quiet",
                    "--data", folder / "data", "--out", folder / "run"], check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "run/tapes.json").read_text())


class Page(Browser):
    def __init__(self, weft, folder, **given):
        super().__init__(downloads=folder, **given)
        self.weft, self.folder = weft, folder

    def open(self, tapes, place):
        (self.folder / "tapes.json").write_text(json.dumps(tapes))
        made = subprocess.run([self.weft, "view", self.folder / "tapes.json"], check=True, capture_output=True, text=True)
        self.go(pathlib.Path(made.stdout.strip()).as_uri() + place)

    def text(self, name):
        return self.element(name).text

    def click(self, name):
        self.element(name).click()

    def saved(self, name):
        """The texts of the SVG that the page's button saves."""
        file = self.folder / name
        self.click("figure")
        for _ in range(200):
            if file.exists() and file.stat().st_size:
                break
            time.sleep(0.02)
        else:
            sys.exit(f"no {name} is saved")
        tree = xml.fromstring(file.read_text())
        return [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]


def shown_of(lines, cotangents):
    """The names of lines, and all values; with cotangents, if they have come."""
    for line in lines:
        cells = [cell for cell in line["ranks"] if cell]
        yield f"{cells[0][0]} {line['op']}{cells[0][1]}"
        for cell in cells:
            brief, whole = cell[4:6]
            yield whole if 0 < len(whole) < 32 else brief
            brief, whole = cell[6:8]
            if cotangents and brief:
                yield "← " + (whole if 0 < len(whole) < 32 else brief)


def read(page, tapes, pictures):
    lines = tapes["tapes"][0]
    page.open(tapes, "")
    expect(page.text("doubt") == "", f"in doubt without a reason: {page.text('doubt')}")
    without = page.script("""
        return lines.filter((line, i) => { go(i); return !document.querySelector("#details .formula"); }).map(line => line.op)""")
    expect(all(op == "leaf" or op.startswith("parameter ") for op in without), f"no formula for {without}")
    page.script("go(lines.findIndex(line => line.op === 'all_gather'))")
    expect("reduce_scatter: the sum of all ranks' g, of it my rows" in page.text("details"), page.text("details"))
    rows = next(line for line in lines if line["op"] == "all_gather")["ranks"][0][4].split()[0]
    count = 4
    for extent in rows.split("x"):
        count *= int(extent)
    expect(f"f32, {count:,} bytes" in page.text("details"), f"{rows}: {page.text('details')}")

    half = len(lines) // 2
    page.open(tapes, f"#1.{half}")
    texts = page.saved(f"tape-1-{half}.svg")
    expect(set(shown_of(lines[:half], False)) <= set(texts), "the SVG lacks lines of forward")
    expect(not any(f"{line['ranks'][0][0]} {line['op']}{line['ranks'][0][1]}" in texts for line in lines[half:]), "the SVG shows what is to come")
    moments = page.script("return moments.length")
    page.open(tapes, f"#1.{moments}")
    texts = page.saved(f"tape-1-{moments}.svg")
    expect(set(shown_of(lines, True)) <= set(texts), "the SVG lacks lines or cotangents")
    expect({f"rank {r}" for r in range(ranks)} <= set(texts), f"no columns: {texts[:6]}")
    page.click("collectives")
    last = page.script("return now + 1")
    texts = page.saved(f"tape-1-{last}.svg")
    only = [line for line in lines if line["collective"]]
    expect(set(shown_of(only, True)) <= set(texts) and not set(shown_of([lines[0]], False)) <= set(texts), "the SVG of collectives only")
    page.click("collectives")

    page.command("Emulation.setEmulatedMedia", media="print")
    expect(page.script("""
        const lanes = document.querySelector(".lanes"), hidden = each => getComputedStyle(document.querySelector(each)).display === "none";
        return lanes.scrollHeight <= lanes.clientHeight && lanes.scrollWidth <= lanes.clientWidth && hidden(".controls") && hidden("#details")"""),
        "on paper lanes are cut off, or there are controls")
    if pictures:
        for name, svg in (("forward", half), ("all", moments)):
            shutil.copy(page.folder / f"tape-1-{svg}.svg", pathlib.Path(pictures) / f"{name}.svg")
        printed = page.command("Page.printToPDF", printBackground=False)
        (pathlib.Path(pictures) / "print.pdf").write_bytes(base64.b64decode(printed["data"]))
    page.command("Emulation.setEmulatedMedia", media="")

    parameter = next(line for line in lines if line["op"].startswith("parameter "))
    digest = parameter["ranks"][1][4].split(" ", 2)
    parameter["ranks"][1][4] = " ".join((digest[0], "0000" if digest[1] != "0000" else "0001", *digest[2:]))
    page.open(tapes, "#1.9")
    expect(page.text("doubt") == f"Should be equal on all ranks, and is not: the value of {parameter['ranks'][0][0]} {parameter['op']}", page.text("doubt"))
    page.expect_no_errors()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("program")
    parser.add_argument("--pictures")
    options = parser.parse_args()
    if options.pictures:
        pathlib.Path(options.pictures).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        page = Page(options.weft, folder)
        tapes = record(options.program, folder)
        read(page, tapes, options.pictures)
        page.quit()
        for kind, given in (("light", {}), ("dark", {"dark": True}), ("narrow", {"width": 400})) if options.pictures else ():
            other = Page(options.weft, folder, **given)
            other.open(tapes, "#1.70")
            other.expect_to_fit(kind)
            other.picture(options.pictures, kind)
            other.quit()
    exit_with_complaints()


if __name__ == "__main__":
    main()
