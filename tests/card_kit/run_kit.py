#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unpacks a card kit in an empty folder and runs it on null cards, which compute nothing: programs run to their end, and
every test of values has to fail. Where NCCL or a card is missing, what needs it is skipped. cuDNN, which this machine may
have, is left out: it would find no card.

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
fails, ends, skipped = {"failed"}, {"passed", "missed"}, {"skipped"}  # of values; whatever the figures are; not run
one_card = {"kernels": fails, "scores": fails, "optim": fails, "waits": fails, "products": ends, "verbs": ends, "steps": ends}
two_cards = {"nccl": fails, "order": fails, "bits": fails, "zero": fails, "scaling": ends}
with_graph = {"a step of train_contrastive --graph", "a step of train_clip --graph"}


class Kit:
    def __init__(self, archive, folder):
        self.folder, self.kit, self.wrong = folder, folder / "card_kit", []
        subprocess.run(["tar", "-C", folder, "-xf", archive], check=True)
        # This machine may have NCCL, so it has another name.
        for program in (self.kit / "programs").iterdir():
            program.write_bytes(program.read_bytes().replace(b"libnccl.so.2", b"libnccl.so.0"))
        (self.kit / "no_nccl/libnccl.so.2").rename(self.kit / "no_nccl/libnccl.so.0")
        self.add_null("cudart", "libcudart.so.13 { *; };")
        self.add_null("cublas", "libcublas.so.13 { *; };")
        self.add_null("cublasLt", "libcublasLt.so.13 { *; };")

    def add_null(self, name, versions):
        """Where it comes before the machine's own."""
        library = versions.split()[0]
        (self.folder / "versions").write_text(versions)
        subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", f"-I{cuda}", f"-Wl,-soname,{library},--version-script={self.folder}/versions",
                        "-o", self.kit / "libraries" / library, here / f"null_{name}.cpp"], check=True)

    def check(self, good, text):
        self.wrong += [] if good else [text]

    def expect(self, states, *words, code=1, why=None):
        ran = subprocess.run([self.kit / "run", *words, "--out", self.folder / "report"], cwd=self.folder, text=True,
                             env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "WEFT_CUDNN": ""}, stdout=subprocess.PIPE)
        print(ran.stdout, flush=True)
        parts = json.loads((self.folder / "report/report.json").read_text())["parts"]
        self.check([part["name"] for part in parts] == [*states], f"{' '.join(words)} has other parts: {parts}")
        for part in parts:
            self.check(part["state"].split()[0] in states[part["name"]], f"{part['name']} of nothing {part['state']}")
            self.check(why in (None, *part["said"]), f"{part['name']} does not say why it is skipped: {part['said']}")
        self.check(ran.returncode == code, f"the kit ended with {ran.returncode}, not with {code}")
        timed = {figure["what"] for part in parts for figure in part["figures"] if part["name"] == "steps"}
        self.check("steps" not in states or timed >= with_graph, f"steps are timed only of {timed}")
        self.check("<table>" in (self.folder / "report/report.html").read_text(), "the report has no table")


with tempfile.TemporaryDirectory() as name:
    kit = Kit(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(name))
    all_skipped = dict.fromkeys(two_cards, skipped)
    kit.expect(one_card, *one_card)
    kit.expect(all_skipped, "--cards", "2", code=0, why="there is no NCCL here (libnccl.so.2)")
    kit.add_null("nccl", "libnccl.so.0 { *; };")
    kit.expect(all_skipped, "--cards", "3", code=0, why="error: WEFT_TRANSPORT=nccl: ranks 0 and 2 share a card; NCCL needs one for each")
    kit.expect(two_cards, "--cards", "2")
sys.exit("\n".join(kit.wrong) or 0)
