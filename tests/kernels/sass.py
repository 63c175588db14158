#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the machine code of the kernels from nvcc: no registers are spilled, kernels that stream through memory store
16 bytes at a time, and those that read scores load as many.

    tests/kernels/sass.py [--cuobjdump PROGRAM] [FILE...]     (objects, or libraries of them; none: skipped)
"""
import argparse
import collections
import re
import shutil
import subprocess
import sys

skipped = 77  # meson's exit code for skipped tests

slopes = [f"::Slopes<(weft::ScoreSum){kind}, float, weft::cuda::{to}"
          for kind in range(3) for to in ("InPlace", "InParts<2>", "InParts<3>")]
# Kernels that must exist and store 16 bytes at a time. Ends of rows are stored value by value, as often as the rest.
streaming = ("update_kernel<weft::Descent", "update_kernel<weft::Momentum<", "update_kernel<weft::AdamUpdate",
             "update_kernel<weft::AmsgradUpdate", "update_kernel<weft::AdamDirection",
             "update_kernel<weft::MomentumDirection", "update_kernel<weft::VarianceDirection",
             "::Normalize<(weft::Normalizer)0", "::Normalize<(weft::Normalizer)1",
             "::NormalizePullback<(weft::Normalizer)0", "::NormalizePullback<(weft::Normalizer)1",
             "::CrossEntropyPullback<", "::Standardize<", "::StandardizePullback<", "::LayerNorm<",
             "::PullbackOfPart<", *slopes,
             "map_kernel<4, weft::cuda::(anonymous namespace)::Value<weft::Tanh, float>",
             "map_kernel<8, weft::cuda::(anonymous namespace)::Value<weft::Tanh, weft::BFloat16>")
# Kernels that must exist and load 16 bytes at a time.
reading = ("::SumRow<(weft::ScoreSum)0, float", "::SumRow<(weft::ScoreSum)2, float", "::AddColumns<float", "::Nearest<float", *slopes)
# Sines and cosines keep 2 / pi in local memory for large angles, because the index depends on the data.
local = re.compile(r"weft::(Sin|Cos)\b|::NormalDraw<")
widths = {None: 4, "U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


def kernels_of(text):
    """Names with the number of stores by width in bytes, of accesses to local memory, and of loads of 16 bytes."""
    kernels = []
    for line in text.splitlines():
        if found := re.search(r"Function : (\S.*)", line):
            stores = collections.Counter()
            kernels.append((found[1], stores))
        elif re.search(r"\b(LDG|LD)\.E\.128\b", line):
            stores["loads"] += 1
        elif found := re.search(r"\b(STG|ST)\.E((?:\.\w+)*) ", line):
            width = re.search(r"\.(U8|S8|U16|S16|64|128)\b", found[2])
            if ".SYS" not in found[2]:  # what the host reads, of a bad index
                stores[widths[width and width[1]]] += 1
        elif re.search(r"\b(STL|LDL)\b", line):
            stores["local"] += 1
    return kernels


def faults_of(kernels):
    for name, stores in kernels:
        if stores["local"] and not local.search(name):
            yield f"{stores['local']} accesses of local memory in {name}"
        whole, single = 16 * stores[16], sum(width * count for width, count in stores.items() if width in (1, 2, 4, 8))
        streams = whole > 0 or any(text in name for text in streaming)
        if streams and (whole == 0 or single > whole + 16):  # plus a value or two per row
            yield f"{whole} bytes are stored whole, {single} one by one in {name}"
        if not stores["loads"] and any(text in name for text in reading):
            yield f"nothing is loaded whole in {name}"
    for text in (*streaming, *reading):
        if not any(text in name for name, _ in kernels):
            yield f"there is no kernel {text}..."


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"))
parser.add_argument("files", nargs="*")
arguments = parser.parse_args()
if not arguments.cuobjdump or not arguments.files:
    print("skipped: " + ("no kernels of nvcc's are in this build" if not arguments.files else
                         "there is no cuobjdump here, which comes with CUDA's toolkit"))
    sys.exit(skipped)
dumped = [subprocess.run([arguments.cuobjdump, "--dump-sass", file], check=True, capture_output=True).stdout
          for file in arguments.files]
text = subprocess.run(["c++filt"], input=b"".join(dumped), check=True, capture_output=True).stdout.decode()
kernels = kernels_of(text)
faults = list(faults_of(kernels))
print(*faults, f"{len(kernels)} kernels, {len(faults)} faults", sep="\n")
sys.exit(1 if faults else 0)
