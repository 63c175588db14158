# SPDX-License-Identifier: Apache-2.0
"""What several cards are asked, as threads of one process that NCCL connects: tests, and trainings that must end in the
same bits."""
import json
import pathlib
import re
import tempfile

from parts import Failed, checks, of_files, output_of, seconds_of_step, suite
from programs import has_nccl, ran, training


def missing(cards):
    """Why there are not so many cards; empty if there are. Any other failure is for the parts to tell."""
    if not has_nccl():
        return "there is no NCCL here (libnccl.so.2)"
    alone = training("train_contrastive", "--ranks", cards, "--dry-run")
    state, output, _ = ran(alone, 120, WEFT_TRANSPORT="nccl")
    return output.strip() if state == "failed (64)" else ""


def trained(name, until, *words):
    """The hash of the weights, and the loss of each step."""
    with tempfile.TemporaryDirectory() as folder:
        command = training(name, "--out", f"{folder}/run", "--steps", 12, *words)
        output, _ = output_of(command, until)
        losses = [json.loads(line)["loss"] for line in pathlib.Path(folder, "run/metrics.jsonl").read_text().splitlines()]
    if len({*losses}) == 1:
        raise Failed(f"{' '.join(map(str, command))}: the loss of every step is {losses[0]}")
    return re.search(r"weights ([0-9a-f]{16})", output)[1], losses


def equal(what, ours, theirs):
    return {"what": what, "ours": ours, "theirs": theirs, "sense": "equal", "holds": ours == theirs}


def same_bits(name, cards):
    def check(until):
        counts = sorted({1, 2, cards})
        of_one, *others = (trained(name, until, "--same-bits", "--ranks", count)[0] for count in counts)
        for count, weights in zip(counts[1:], others):
            yield equal(f"weights of {name} --same-bits on {count} cards, and on one", weights, of_one)
    return check


def stages(name, cards):
    def check(until):  # in f64, where rounding is far less than any mistake
        whole, first, second, third, again = (
            trained(name, until, "--dtype", "f64", "--ranks", cards, "--zero", stage) for stage in (0, 1, 2, 3, 3))
        yield equal(f"weights of {name} --zero 1, and 0", first[0], whole[0])
        yield equal(f"weights of {name} --zero 2, and 0", second[0], whole[0])
        yield equal(f"weights of {name} --zero 3, twice", third[0], again[0])
        off = max(abs(a - b) / abs(b) for a, b in zip(third[1], whole[1]))
        yield {"what": f"losses of {name} --zero 3, and 0", "ours": f"off by {off:.1e}", "theirs": "1e-6 at most", "sense": "at most",
               "holds": off <= 1e-6}
    return check


def scaling(cards):
    def check(until):
        def images_per_second(count, *words):
            with tempfile.TemporaryDirectory() as folder:
                batch = ["--ranks", count, "--batch", 240 * count]
                command = training("train_contrastive", "--out", f"{folder}/run", *batch, *words, "--steps")
                return 240 * count / seconds_of_step(command, (200, 800), until)
        one = images_per_second(1)
        for words in [], ["--fast-reductions"]:
            many = images_per_second(cards, *words)
            yield {"what": " ".join(["train_contrastive", *words, f"on {cards} cards, 240 images on each"]), "ours": f"{many:.0f} images/s",
                   "theirs": f"{one:.0f} on one", "value": many / one}
    return check


def parts(cards):
    return {
        "nccl": suite("test_collectives", *of_files("test_nccl", "test_nccl_faults", "test_threads_on_cards")),
        "order": suite("test_training", *of_files("test_training_on_cards")),
        "bits": checks(same_bits("train_contrastive", cards), same_bits("train_clip", cards)),
        "zero": checks(stages("train_contrastive", cards), stages("train_clip", cards)),
        "scaling": checks(scaling(cards)),
    }
