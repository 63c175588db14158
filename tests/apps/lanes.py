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

try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
except ImportError:
    sys.exit(77)

root = pathlib.Path(__file__).resolve().parents[2]
ranks = 3
complaints = []


def expect(holds, what):
    if not holds:
        complaints.append(what)


def record(program, folder):
    subprocess.run([sys.executable, root / "tests/apps/small_data.py", folder / "data", "--train", "96", "--test", "32"], check=True)
    subprocess.run([program, "--steps", "2", "--record-step", "2", "--batch", "24", "--width", "2", "--ranks", str(ranks), "--quiet",
                    "--data", folder / "data", "--out", folder / "run"], check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "run/tapes.json").read_text())


class Page:
    def __init__(self, weft, folder, width=1300, dark=False):
        self.weft, self.folder = weft, folder
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", f"--window-size={width},1200", "--host-resolver-rules=MAP * ~NOTFOUND"):
            options.add_argument(argument)
        options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = shutil.which("chromedriver")  # else Selenium looks for one on the network
        self.browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver) if driver else None)
        if dark:
            self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        if width < 500:
            self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 1200, "deviceScaleFactor": 1, "mobile": True})

    def open(self, tapes, place):
        (self.folder / "tapes.json").write_text(json.dumps(tapes))
        made = subprocess.run([self.weft, "view", self.folder / "tapes.json"], check=True, capture_output=True, text=True)
        self.browser.get("about:blank")
        self.browser.get(pathlib.Path(made.stdout.strip()).as_uri() + place)

    def text(self, name):
        return self.browser.find_element(By.ID, name).text

    def click(self, name):
        self.browser.find_element(By.ID, name).click()

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

    def picture(self, pictures, name):
        if pictures:
            height, width = self.browser.execute_script("return [document.documentElement.scrollHeight, window.innerWidth]")
            shot = self.browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": {
                "x": 0, "y": 0, "width": width, "height": height, "scale": 1}})
            (pathlib.Path(pictures) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


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
    without = page.browser.execute_script("""
        return lines.filter((line, i) => { go(i); return !document.querySelector("#details .formula"); }).map(line => line.op)""")
    expect(all(op == "leaf" or op.startswith("parameter ") for op in without), f"no formula for {without}")
    page.browser.execute_script("go(lines.findIndex(line => line.op === 'all_gather'))")
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
    moments = page.browser.execute_script("return moments.length")
    page.open(tapes, f"#1.{moments}")
    texts = page.saved(f"tape-1-{moments}.svg")
    expect(set(shown_of(lines, True)) <= set(texts), "the SVG lacks lines or cotangents")
    expect({f"rank {r}" for r in range(ranks)} <= set(texts), f"no columns: {texts[:6]}")
    page.click("collectives")
    last = page.browser.execute_script("return now + 1")
    texts = page.saved(f"tape-1-{last}.svg")
    only = [line for line in lines if line["collective"]]
    expect(set(shown_of(only, True)) <= set(texts) and not set(shown_of([lines[0]], False)) <= set(texts), "the SVG of collectives only")
    page.click("collectives")

    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    expect(page.browser.execute_script("""
        const lanes = document.querySelector(".lanes"), hidden = each => getComputedStyle(document.querySelector(each)).display === "none";
        return lanes.scrollHeight <= lanes.clientHeight && lanes.scrollWidth <= lanes.clientWidth && hidden(".controls") && hidden("#details")"""),
        "on paper lanes are cut off, or there are controls")
    if pictures:
        for name, svg in (("forward", half), ("all", moments)):
            shutil.copy(page.folder / f"tape-1-{svg}.svg", pathlib.Path(pictures) / f"{name}.svg")
        printed = page.browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
        (pathlib.Path(pictures) / "print.pdf").write_bytes(base64.b64decode(printed["data"]))
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})

    parameter = next(line for line in lines if line["op"].startswith("parameter "))
    digest = parameter["ranks"][1][4].split(" ", 2)
    parameter["ranks"][1][4] = " ".join((digest[0], "0000" if digest[1] != "0000" else "0001", *digest[2:]))
    page.open(tapes, "#1.9")
    expect(page.text("doubt") == f"Should be equal on all ranks, and is not: the value of {parameter['ranks'][0][0]} {parameter['op']}", page.text("doubt"))
    errors = [each for each in page.browser.get_log("browser") if each["level"] == "SEVERE"]
    expect(not errors, f"errors: {errors}")


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
        try:
            page = Page(options.weft, folder)
        except Exception as error:  # Selenium's are many
            print(f"no browser: {error}".splitlines()[0])
            return 77
        tapes = record(options.program, folder)
        read(page, tapes, options.pictures)
        page.browser.quit()
        for kind, given in (("light", {}), ("dark", {"dark": True}), ("narrow", {"width": 400})) if options.pictures else ():
            other = Page(options.weft, folder, **given)
            other.open(tapes, "#1.70")
            expect(other.browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), f"{kind}: wider than the window")
            other.picture(options.pictures, kind)
            other.browser.quit()
    for complaint in complaints:
        print("wrong:", complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
