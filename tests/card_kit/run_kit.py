#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unpacks a card kit in an empty folder and runs it on the null card, which computes nothing: programs run to their end, and
every test of values has to fail.

    tests/card_kit/run_kit.py build/card_kit.tar.xz
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
cuda = pathlib.Path("/usr/local/cuda/include")
fails = {"kernels", "scores", "optim", "waits"}  # tests of values
ends = {"products", "verbs", "steps"}             # whatever the figures are


def null_libraries(folder):
    for name in ("cudart", "cublas"):
        (folder / "version").write_text(f"lib{name}.so.13 {{ *; }};\n")
        subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", f"-I{cuda}", f"-Wl,-soname,lib{name}.so.13,--version-script={folder}/version",
                        "-o", folder / f"lib{name}.so.13", here / f"null_{name}.cpp"], check=True)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    null_libraries(folder)
    subprocess.run(["tar", "-C", folder, "-xf", pathlib.Path(sys.argv[1]).resolve()], check=True)
    # The null card's libraries come first, where the machine's would be.
    for library in folder.glob("*.so.13"):
        library.replace(folder / "card_kit/libraries" / library.name)
    ran = subprocess.run([folder / "card_kit/run", *sorted(fails | ends), "--out", folder / "report"], cwd=folder, text=True,
                         env={"PATH": os.environ["PATH"], "HOME": name}, stdout=subprocess.PIPE)
    print(ran.stdout)
    states = {part["name"]: part["state"] for part in json.loads((folder / "report/report.json").read_text())["parts"]}
    wrong = [f"{part} of nothing {state}" for part, state in states.items()
             if part in fails and not state.startswith("failed") or part in ends and state not in ("passed", "missed")]
    wrong += [] if ran.returncode == 1 else [f"the kit ended with {ran.returncode}, not with 1"]
    wrong += [] if "<table>" in (folder / "report/report.html").read_text() else ["the report has no table"]
sys.exit("\n".join(wrong))
