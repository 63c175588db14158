# SPDX-License-Identifier: Apache-2.0
"""What one card is asked: tests, and times beside cuBLAS, a copy and PyTorch, if it is there."""
import shutil
import sys
import tempfile

from parts import Failed, checks, goals, of_files, seconds_of_step, suite
from programs import kit, training

sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")


def milliseconds(seconds):
    return f"{1000 * seconds:.3f} ms"


def step_of(name, until, *words):
    with tempfile.TemporaryDirectory() as folder:
        return seconds_of_step(training(name, "--out", f"{folder}/run", *words, "--steps"), (200, 1200), until)


def in_graph(name, step, until):
    graph = step_of(name, until, "--graph")
    return {"what": f"a step of {name} --graph", "ours": milliseconds(graph), "theirs": f"{milliseconds(step)} without", "value": step / graph}


def in_torch(name, step, until):
    row = {"what": f"a step of {name}", "ours": milliseconds(step)}
    try:
        twin = seconds_of_step([sys.executable, kit / "rivals/ddp_contrastive.py", "installed", "--card"], (100, 400), until)
    except Failed as failed:
        return row | {"theirs": f"PyTorch: {failed.args[-1]}"}
    return row | {"theirs": f"{milliseconds(twin)} in PyTorch", "value": twin / step}


def steps(name, *beside):
    def check(until):
        step = step_of(name, until)
        yield {"what": f"a step of {name}", "ours": milliseconds(step)}
        for other in beside:
            yield other(name, step, until)
    return check


parts = {
    "kernels": suite("test_kernels"),
    "scores": suite("test_engine", *of_files("test_scores")),
    "optim": suite("test_optim"),
    "waits": suite("test_cuda_waits"),
    "memory": suite("test_kernels", *of_files("test_cuda_extents", "test_cuda_scores"), under=sanitizer and (sanitizer, "--error-exitcode", "1")),
    "products": goals("gpu-matmul"),
    "verbs": goals("gpu-memory"),
    "clip": goals("gpu-CLIP"),
    "steps": checks(steps("train_contrastive", in_graph, in_torch), steps("train_clip", in_graph), steps("train_vq"), steps("train_vqgan_weight")),
}
