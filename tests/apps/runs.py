#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that have finished, that were killed, of an earlier version, damaged ones and folders of something else, as
`weft runs` lists and compares them.

    tests/apps/runs.py WEFT PROGRAM      (PROGRAM: train_contrastive)
"""
import html.parser
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

weft, program = sys.argv[1:3]
failures = 0


def check(name, ok, *shown):
    global failures
    if not ok:
        failures += 1
        print("FAILED:", name, *shown)


def run(*command, code=0):
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
    if ended.returncode != code:
        check(f"{' '.join(map(str, command))} ends with {code}", False, ended.returncode, ended.stdout, ended.stderr)
    return ended


def row(listed, name):
    return next((" ".join(line.split()) for line in listed.splitlines() if line.split()[0].endswith(name)), "")


class Page(html.parser.HTMLParser):
    """Counts what is drawn, and expects every opened tag to be closed."""
    void = {"meta", "img", "line", "circle", "polyline", "polygon", "path"}

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.words, self.sound = [], [], [], True
        self.feed(text)
        self.sound = self.sound and not self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes).get("class", "")))
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.void:
            self.sound = self.sound and bool(self.open) and self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def train(folder, name, *more):
    make = [program, "--data", folder / "data", "--out", folder / "runs" / name, "--batch", 24, "--width", 2,
            "--watch-every", 4, *more]
    return [str(word) for word in make]


def check_list(folder, figures):
    runs = folder / "runs"
    listed = run(weft, "runs", runs).stdout
    check("a finished run", "train_contrastive" in row(listed, "/one") and " nt-xent conv 8 1 finished linear probe " in row(listed, "/one"), listed)
    check("a killed run", " 2 failed" in row(listed, "/killed") and " of 1,000,000 2 failed" in row(listed, "/killed"), listed)
    check("a run of an earlier version", " byol conv 8 1 finished" in row(listed, "/old"), listed)
    check("damaged results", row(listed, "/results.json:") == f"{runs}/damaged/results.json: not what a run has written", listed)
    check("a damaged configuration", f"{runs}/damaged/config.toml: " in listed, listed)
    check("something else", "letters" not in listed, listed)
    check("the latest is the last", listed.index("/one") < listed.index("/killed"), listed)
    all_of = {pathlib.Path(each["folder"]).name: each for each in json.loads(run(weft, "runs", runs, "--json").stdout)}
    check("figures are those of --json", all_of["one"]["figures"] == figures, all_of["one"], figures)
    check("what is not known is null", all_of["old"]["program"] is None and all_of["old"]["ranks"] == 1, all_of["old"])
    check("problems are told", len(all_of["damaged"]["problems"]) == 2, all_of["damaged"])
    other = run(weft, "runs", folder / "letters", runs / "one", folder / "none", code=66)
    check("a folder of something else", other.stderr.splitlines() == [f"weft: {folder}/letters: neither a run nor a folder of runs",
                                                                      f"weft: {folder}/none: there is no such folder"], other.stderr)
    check("beside which a run is listed", "/one" in other.stdout, other.stdout)


def check_page(folder):
    runs, page = folder / "runs", folder / "page.html"
    run(weft, "runs", runs / "one", runs / "old", "--report", page)
    seen = Page(page.read_text())
    words = " ".join(seen.words)
    check("a page whose tags are closed", seen.sound, seen.open)
    check("tables of figures and of options that differ", seen.seen.count(("table", "even")) == 2 and "Options that differ" in words)
    check("an option that differs, and none that does not", "byol" in words and "watch-every" not in words)
    charts = sum(tag == "svg" for tag, _ in seen.seen)
    both = sum(tag == "polyline" for tag, _ in seen.seen)
    check("curves over each other", charts >= 10 and both == 2 * charts, charts, both)
    check("in a colour for each run", seen.seen.count(("polyline", "one line")) == seen.seen.count(("polyline", "two line")) == charts)
    check("damaged files are drawn, too", run(weft, "runs", runs / "one", runs / "damaged", "--report", page).returncode == 0)
    for given, code, text in (
        ([runs / "one"], 64, "--report: it compares two to 5 runs, not 1"),
        ([runs / "one"] * 6, 64, "--report: it compares two to 5 runs, not 6"),
        ([runs / "one", runs / "old", "--repot", page], 64, "--repot"),
    ):
        check(text, text in run(weft, "runs", *given, "--report", page, code=code).stderr)
    check("no place for the page", "cannot be created" in run(weft, "runs", runs / "one", runs / "old", "--report", folder / "no" / "page", code=74).stderr)


def main():
    with tempfile.TemporaryDirectory(prefix="weft_runs_") as name:
        folder = pathlib.Path(name)
        make = pathlib.Path(__file__).resolve().with_name("small_data.py")
        subprocess.run([sys.executable, make, folder / "data", "--train", "96", "--test", "32"], check=True)
        said = run(*train(folder, "one", "--steps", 8, "--ranks", 1, "--json")).stdout
        run(*train(folder, "old", "--steps", 8, "--ranks", 1, "--method", "byol", "--quiet"))
        runs = folder / "runs"
        (runs / "old" / "results.json").unlink()
        time.sleep(1)  # dates have whole seconds
        killed = subprocess.Popen(train(folder, "killed", "--steps", 1000000, "--ranks", 2, "--quiet"))
        metrics = runs / "killed" / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text().count("\n") > 2):
            time.sleep(0.02)
        check("a run that goes on", row(run(weft, "runs", runs / "killed").stdout, "/killed").endswith(" running"))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        (runs / "damaged").mkdir()
        (runs / "damaged" / "config.toml").write_text("rate 3")
        (runs / "damaged" / "results.json").write_text('{"program": [')
        (runs / "damaged" / "metrics.jsonl").write_text("\0\0")
        for place in folder / "letters", runs / "letters":
            place.mkdir()
            (place / "text").write_text("Dear reader")
        check_list(folder, json.loads(said.splitlines()[-1])["figures"])
        check_page(folder)
    print("runs are listed and compared" if failures == 0 else f"{failures} not as they should be")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
