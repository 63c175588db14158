#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains an encoder, exports and evaluates it, and begins other trainings with it. The evaluation must be that of the
training's own end, from the export, the checkpoint and the run's folder, on several numbers of ranks, as threads and as
processes.

    tests/apps/take_along.py TRAIN_CLIP TRAIN_CONTRASTIVE TRAIN_VQ TRAIN_VQGAN_WEIGHT EVALUATE [--mpiexec NAME]
"""
import argparse
import ast
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

tests, features = 32, 16
failures = 0


def check(name, ok, *shown):
    global failures
    if not ok:
        failures += 1
        print("FAILED:", name, *shown)


def ended(*command):
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=100)
    if run.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
    return run.stdout


def figures(*command):
    return json.loads(ended(*command, "--json").splitlines()[-1])["figures"]


def metadata(file):
    bytes_of = file.read_bytes()
    return json.loads(bytes_of[8:8 + struct.unpack("<Q", bytes_of[:8])[0]])["__metadata__"]


def array(file):
    """The shape and the values, f4, of a .npy file."""
    bytes_of = file.read_bytes()
    begin = 10 + struct.unpack("<H", bytes_of[8:10])[0]
    shape = ast.literal_eval(bytes_of[10:begin].decode())["shape"]
    return shape, struct.unpack(f"<{shape[0] * shape[1]}f", bytes_of[begin:])


def check_evaluations(options, folder, data, ways):
    small = ["--data", data, "--steps", 6, "--batch", 32, "--width", 2]
    embeddings = []
    for network in "conv", "mlp":
        for number, (launcher, threads) in enumerate(ways if network == "conv" else ways[1:2]):
            out, export = folder / f"{network} {number}", folder / f"{network} {number}.safetensors"
            trained = figures(*launcher, options.contrastive, *threads, *small, "--encoder", network, "--out", out, "--export", export)
            checkpoint = out / "checkpoints/step-000006.safetensors"
            words = metadata(export)
            same = {key: value for key, value in metadata(checkpoint).items() if key in words and key != "weft.xxh64"}
            check("a checkpoint describes its model as the export does", words.keys() - same.keys() == {"weft.xxh64"} and
                  all(words[key] == value for key, value in same.items()), words)
            for model in (export, checkpoint, out) if number == 0 else (out,):
                file = folder / f"{network} {number} {model.suffix}.npy"
                again = folder / "again.safetensors"
                found = figures(*launcher, options.evaluate, *threads, "--data", data, "--model", model, "--embeddings", file,
                                "--labels-per-class", 2, "--export", again)
                for name in "linear probe", "20 nearest neighbours", "linear probe on raw pixels":
                    check(f"{network}, {launcher} {threads}: {name} from {model.name}", found[name] == trained["test accuracy: " + name], found, trained)
                check("an export of a checkpoint is that of its training", again.read_bytes() == export.read_bytes())
                embeddings.append(file)
            if number > 0 or network != "conv":
                continue
            # On other numbers of ranks the sums of the linear probe are rounded differently.
            everywhere = [figures(*other, options.evaluate, *of_other, "--data", data, "--model", export, "--labels-per-class", 0)
                          for other, of_other in ways]
            check("neighbours on any number of ranks", len({found["20 nearest neighbours"] for found in everywhere}) == 1, everywhere)
            probes = [found["linear probe"] for found in everywhere]
            check("probes on any number of ranks", max(probes) - min(probes) <= 1 / tests, everywhere)
    for file in embeddings:
        shape, values = array(file)
        check("there are features of every picture", shape == (tests, features) and any(values), shape)


def check_beginnings(options, folder, data, ways):
    """--init, also with another batch, seed, type and program."""
    small, export = ["--data", data, "--batch", 16, "--width", 2], folder / "conv 0.safetensors"
    launcher, threads = ways[-1]
    first = ended(*launcher, options.contrastive, *threads, *small, "--steps", 1, "--rate", 0, "--no-probes", "--seed", 5, "--dtype", "f64",
                  "--init", export, "--out", folder / "from export", "--export", folder / "f64.safetensors")
    check("what was taken is told", "12 of 18 tensors; the others are random: head.0.weight is not in the file" in first, first)
    expected = figures(options.evaluate, "--ranks", 1, "--data", data, "--model", export, "--labels-per-class", 0)
    f64 = figures(options.evaluate, "--ranks", 1, "--data", data, "--model", folder / "f64.safetensors", "--labels-per-class", 0)
    check("a rate of zero leaves the weights, in f64", f64["20 nearest neighbours"] == expected["20 nearest neighbours"], f64, expected)
    clip = ended(*launcher, options.clip, *threads, *small, "--steps", 1, "--init", folder / "conv 0", "--out", folder / "clip",
                 "--export", folder / "clip.safetensors")
    check("a checkpoint of another program is taken, with its head", "18 of 41 tensors; the others are random: sentences." in clip, clip)
    figures(options.evaluate, "--data", data, "--model", folder / "clip", "--labels-per-class", 0)


def check_zero_shot(options, folder, data, ways):
    """An encoder that was trained with sentences finds the classes of pictures as it did in its training."""
    small = ["--data", data, "--steps", 12, "--batch", 32, "--width", 2, "--rate", 0.01]
    prompts = folder / "prompts"
    for number, (launcher, threads) in enumerate(ways):
        out, export = folder / f"sentences {number}", folder / f"sentences {number}.safetensors"
        trained = figures(*launcher, options.clip, *threads, *small, "--out", out, "--export", export)
        evaluate = [*launcher, options.evaluate, *threads, "--data", data, "--labels-per-class", 0]
        for model in out, export:
            found = figures(*evaluate, "--model", model)
            check(f"{launcher} {threads}: zero-shot from {model.name}", found["zero-shot"] == trained["zero-shot test accuracy"], found, trained)
        prompts.write_text("a bag\n" * 10)
        found = figures(*evaluate, "--model", out, "--sentences", prompts)
        check("sentences that are all the same find the first class", found["zero-shot"] == 4 / tests, found)


def check_averages(options, folder, data, ways):
    """An average of the weights: what is measured and exported, also if the training was resumed."""
    small = ["--data", data, "--steps", 8, "--batch", 32, "--width", 2, "--rate", 0.1, "--checkpoint-every", 4]
    plain = figures(options.contrastive, "--ranks", 1, *small, "--out", folder / "plain", "--export", folder / "plain.export")
    for number, (launcher, threads) in enumerate(ways):
        out, export, again = (folder / f"{name} {number}" for name in ("average", "average export", "resumed export"))
        zero = ["--zero", number % 3, "--ema", 0.9]
        average = figures(*launcher, options.contrastive, *threads, *small, *zero, "--out", out, "--export", export)
        found = figures(*launcher, options.evaluate, *threads, "--data", data, "--model", out, "--labels-per-class", 0)
        for name in "linear probe", "20 nearest neighbours":
            check(f"{name} of an average", found[name] == average["test accuracy: " + name], found, average)
        ended(*launcher, options.contrastive, *threads, *small, *zero, "--out", folder / f"resumed {number}", "--export", again,
              "--resume", out / "checkpoints/step-000004.safetensors")
        check("a resumed average has the same bits", again.read_bytes() == export.read_bytes())
        check("an average is not the last weights", export.read_bytes() != (folder / "plain.export").read_bytes())
        if number == 0:
            check("an average changes no step", average["hash of the weights"] == plain["hash of the weights"], average, plain)


def values(file, form):
    """All tensors of a safetensors file of one type, in its order."""
    bytes_of = file.read_bytes()
    begin = 8 + struct.unpack("<Q", bytes_of[:8])[0]
    return struct.unpack(f"<{(len(bytes_of) - begin) // struct.calcsize(form)}{form}", bytes_of[begin:])


def check_types(options, folder, data, ways):
    """Trainings in f32 and f64 that take their weights from one file begin with the same numbers."""
    still = ["--data", data, "--batch", 32, "--width", 2, "--rate", 0, "--steps", 1]
    for number, (launcher, threads) in enumerate(ways):
        for program in options.contrastive, options.clip:
            out = folder / f"{pathlib.Path(program).name} random {number}"

            def begun(name, form, *more):
                export = folder / f"{out.name} {name}"
                ended(*launcher, program, *threads, *still, "--out", folder / name, "--fresh", "--export", export, *more)
                return values(export, form)

            random = begun(out.name, "f")
            as_f32, as_f64 = (begun(dtype, form, "--init", out, "--seed", 9, "--dtype", dtype) for dtype, form in (("f32", "f"), ("f64", "d")))
            check(f"{program}, {launcher} {threads}: types begin alike", any(as_f32) and as_f32 == as_f64 == random)


def check_vq(options, folder, data, ways):
    """--init of the VQ programs: the first loss is that of the run it comes from, in its next step, on the same pictures."""
    def last_loss(name, *command):
        ended(*command, "--out", folder / name)
        return json.loads((folder / name / "metrics.jsonl").read_text().splitlines()[-1])["loss"]

    for program in options.vq, options.vqgan:
        name = pathlib.Path(program).name
        small = [program, "--data", data, "--batch", 96, "--width", 4, "--dtype", "f64"]
        begun = last_loss(name, *small, "--ranks", 1, "--steps", 1)
        last_loss(name, *small, "--ranks", 1, "--steps", 8, "--resume", "auto")
        next_step = last_loss(f"{name} resumed", *small, "--ranks", 1, "--steps", 9, "--resume", folder / name / "checkpoints/step-000008.safetensors")
        for number, (launcher, threads) in enumerate(ways):
            found = last_loss(f"{name} {number}", *launcher, *small, *threads, "--steps", 1, "--seed", 5, "--init", folder / name)
            check(f"{name}, {launcher} {threads}: --init", abs(found - next_step) < 1e-9 * begun, found, next_step, begun)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for program in "clip", "contrastive", "vq", "vqgan", "evaluate":
        parser.add_argument(program)
    parser.add_argument("--mpiexec")
    options = parser.parse_args()
    ways = [([], ["--ranks", ranks]) for ranks in (1, 2, 3)]
    if options.mpiexec:
        ways.append(([options.mpiexec, "-n", 3], []))
    with tempfile.TemporaryDirectory(prefix="weft_along_") as name:
        folder = pathlib.Path(name)
        make = pathlib.Path(__file__).resolve().with_name("small_data.py")
        ended(sys.executable, make, folder / "data", "--train", 96, "--test", tests)
        check_evaluations(options, folder, folder / "data", ways)
        check_beginnings(options, folder, folder / "data", ways)
        check_zero_shot(options, folder, folder / "data", ways)
        check_averages(options, folder, folder / "data", ways)
        check_types(options, folder, folder / "data", ways)
        check_vq(options, folder, folder / "data", ways)
    print("all as it should be" if failures == 0 else f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
