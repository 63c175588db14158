#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the recorded steps of trainings: every rank's nodes, in order and with cotangents, collectives on all ranks,
equal values where placements promise them, the same weights as without a record, and the page that weft view makes.

    tests/apps/tapes.py WEFT PROGRAM ... [--mpiexec NAME]
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
steps, recorded = 3, 2
small = {"train_contrastive": ["--width", "2"], "train_clip": ["--width", "2"], "train_vq": ["--codes", "16"],
         "train_vqgan_weight": []}


def ended(command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def weights(command):
    run = ended(command)
    found = re.search(r"weights ([0-9a-f]{16})", run.stdout)
    return found[1] if found else sys.exit(f"{command} ended with {run.returncode}:\n{run.stderr}")


def complaints_of_tape(lines, ranks):
    numbers = [0] * ranks
    for line in lines:
        nodes = [(rank, node) for rank, node in enumerate(line["ranks"]) if node]
        for rank, (number, inputs, placement, dtype, value, *_) in nodes:
            if number != numbers[rank]:
                yield f"rank {rank} has node {number} after {numbers[rank] - 1}"
            numbers[rank] += 1
            if any(int(each) >= number for each in re.findall(r"\d+", inputs)):
                yield f"node {number} of rank {rank} has inputs {inputs}"
            known = set(placement) <= set("RIVPC?") and dtype in ("f32", "f64", "bf16")
            if not known or not re.match(r"(scalar|\d+(x\d+)*)( |$)", value):
                yield f"node {number} of rank {rank} is {placement}, {dtype}, {value}"
        if line["collective"] and line["place"]:
            if len(nodes) != ranks:
                yield f"{line['op']} is on {len(nodes)} ranks"
            file, _, number = line["place"].rpartition(":")
            if not (root / file).is_file() or not 0 < int(number) <= len((root / file).read_text().splitlines()):
                yield f"{line['op']} is said to be at {line['place']}"
        for part, letters in (4, "RI"), (6, "IP"):
            if len({node[part] for _, node in nodes if node[2] in list(letters)}) > 1:
                yield f"{line['op']}, {nodes[0][1][2]}, differs between ranks"
    if not any("conv" in line["op"] or line["op"] == "matmul" for line in lines) or min(numbers) == 0:
        yield f"{numbers} nodes"


def complaints(tapes, program, ranks):
    if tapes["step"] != recorded or tapes["ranks"] != ranks or not tapes["tapes"]:
        yield f"step {tapes['step']}, {tapes['ranks']} ranks, {len(tapes['tapes'])} tapes"
    for lines in tapes["tapes"]:
        yield from complaints_of_tape(lines, ranks)
        parameters = [line for line in lines if line["op"].startswith("parameter ")]
        for line in parameters:
            if not all(node and node[6] for node in line["ranks"]):
                yield f"{line['op']} has no gradient"
    if program in ("train_contrastive", "train_clip") and not any(line["place"] for lines in tapes["tapes"] for line in lines):
        yield "no line is a collective's with its place"


def complaints_of_page(weft, run, folder):
    page = folder / "page.html"
    made = ended([weft, "view", run, "-o", page])
    if made.returncode or made.stdout.strip() != str(page):
        return [f"weft view ended with {made.returncode}: {made.stdout}{made.stderr}"]
    html = page.read_text()
    within = re.search(r'<script type="application/json" id="record">(.*?)</script>', html, re.S)
    if not within or json.loads(within[1]) != json.loads((run / "tapes.json").read_text()):
        return ["the page has other tapes"]
    own = html.replace(within[1], "").replace("http://www.w3.org/2000/svg", "")  # a name, and no place
    loads = re.findall(r"https?:|src=|@import|url\(", own)
    return [f"the page loads {loads}"] if loads else []


def complaints_of_mistakes(weft, command, folder):
    """Of weft view, and of a step that is not made."""
    damaged, title = folder / "damaged.json", folder / "title.json"
    tapes = json.loads((folder / "run/tapes.json").read_text())
    damaged.write_text(json.dumps(tapes)[:-20])
    tapes["tapes"][0][0]["ranks"].pop()
    (folder / "ranks.json").write_text(json.dumps(tapes))
    tapes["tapes"], tapes["title"] = [], "</script><script>alert(1)</script>"
    title.write_text(json.dumps(tapes))
    for given, code, text in (([folder / "nowhere"], 66, "nowhere/tapes.json does not exist; a training writes it with --record-step N"),
                              ([damaged], 65, "damaged.json has no tapes, or is damaged"),
                              ([folder / "ranks.json"], 65, "ranks.json has no tapes, or is damaged"),
                              ([folder / "run", "-o", "/proc/page.html"], 74, "/proc/page.html")):
        run = ended([weft, "view", *given])
        if run.returncode != code or text not in run.stderr or len(run.stderr.splitlines()) != 1:
            yield f"weft view {given} ends with {run.returncode}: {run.stderr}"
    if ended([weft, "view", title]).returncode or "</script><script>" in (folder / "tapes.html").read_text():
        yield "a title ends the script of the page"
    late = ended([*command, "--record-step", steps + 1])
    if late.returncode or f"--record-step is {steps + 1}, and steps 1 to {steps} are made" not in late.stdout + late.stderr:
        yield f"a step that is not made: {late.returncode}, {late.stdout}{late.stderr}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--mpiexec")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.executable, root / "tests/apps/small_data.py", folder / "data", "--train", "96", "--test", "32"],
                       check=True)
        for path in options.programs:
            program = pathlib.Path(path).name
            command = [path, "--steps", steps, "--batch", "24", *small[program], "--quiet", "--fresh",
                       "--data", folder / "data", "--out", folder / "run"]
            for ranks in (1, 2, 3, 5) if program == "train_contrastive" else (2,):
                ways = {"threads": [*command, "--ranks", ranks]}
                if options.mpiexec and program == "train_contrastive":
                    ways["processes"] = [options.mpiexec, "-n", ranks, *command]
                expected = weights(ways["threads"])
                for way, run in ways.items():
                    what = f"{program}, {ranks} {way}"
                    if weights([*run, "--record-step", recorded]) != expected:
                        found.append(f"{what}: a record changes the weights")
                    tapes = json.loads((folder / "run/tapes.json").read_text())
                    found += [f"{what}: {each}" for each in complaints(tapes, program, ranks)]
                    found += [f"{what}: {each}" for each in complaints_of_page(options.weft, folder / "run", folder)]
                    print(f"{what}: {[len(lines) for lines in tapes['tapes']]} lines")
        found += complaints_of_mistakes(options.weft, [*command, "--ranks", "1"], folder)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
