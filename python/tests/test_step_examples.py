# SPDX-License-Identifier: Apache-2.0
"""The examples of weft.torch and weft.jax: each prints that its step is correct, and with the word wrong, why another one is not."""
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

root = pathlib.Path(__file__).parents[2]
# What the wrong ones are said to be; the program weft says it of what is stored of them (store_examples.py).
causes = json.loads((root / "tests/files/steps/causes.json").read_text())
# Examples of another library than torch, and where it is.
libraries = {"vector_quantize": "vector_quantize_pytorch", "accelerate_accumulation": "accelerate", "trainer_accumulation": "transformers",
             "deepspeed_zero": "deepspeed", "torchtitan_llama": "torchtitan", "fabric_gather": "lightning.fabric",
             "torchmetrics_loss": "torchmetrics", "open_clip_loss": "open_clip", "lightly_loss": "lightly.loss",
             "jax_shard_map": "jax", "jax_pmap": "jax", "jax_contrastive": "jax", "mlx_ring": "mlx"}


def verdict_of(example, *words):
    """What it prints, by itself: what one library sets for its process is not for the next."""
    ran = subprocess.run([sys.executable, root / f"python/examples/{example}.py", *words], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("name, said", causes.items())
def test_examples(name, said):
    library = libraries.get(name, "torch")
    if not importlib.util.find_spec(library.split(".")[0]):
        pytest.skip(f"{library} is not installed")
    assert "verdict: correct" in verdict_of(name)
    wrong = verdict_of(name, "wrong")
    assert "verdict: wrong" in wrong and f"parameters: wrong: {said}" in wrong.replace("signature ", ""), wrong
