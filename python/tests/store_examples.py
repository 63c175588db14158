#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the examples of weft.torch and weft.jax, right and wrong, and keeps what they compare in tests/files/steps, where it is judged
again without PyTorch and JAX. Of large parameters, such as an embedding of torchtitan, nothing is kept.

    store_examples.py [EXAMPLE ...]
"""
import pathlib
import shutil
import subprocess
import sys

root = pathlib.Path(__file__).parents[2]
one_example = """
import importlib.util, math, runpy, shutil, sys, weft
if importlib.util.find_spec("torch"):
    __import__("torch").manual_seed(0)
save, verify, folder = weft.arrays.save, weft.verify, sys.argv[1]

def kept(found):
    shutil.copytree(found, folder)
    return verify(found)

weft.arrays.save = lambda path, tensors: save(path, {name: x for name, x in tensors.items() if math.prod(x.shape) <= 1024})
weft.verify = kept
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main():
    examples = sys.argv[1:] or sorted(path.stem for path in root.glob("python/examples/*.py"))
    for example in examples:
        for words in [], ["wrong"]:
            folder = root / "tests/files/steps" / example / (*words, "right")[0]
            shutil.rmtree(folder, ignore_errors=True)
            # By itself: what one library sets for its process is not for the next.
            subprocess.run([sys.executable, "-c", one_example, folder, root / f"python/examples/{example}.py", *words], check=True,
                           cwd=root / "python/examples")


if __name__ == "__main__":
    main()
