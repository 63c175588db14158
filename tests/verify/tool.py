#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program `weft` as its users start it: dumps whose gradients are finite differences of a CLIP loss written here, in
plain Python, and what it prints and returns for them.

    tests/verify/tool.py PROGRAM
"""
import hashlib
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zipfile

ranks, width, rows, scale = 3, 4, (3, 2, 4), 2.5
program = sys.argv[1]
failures = 0


def clip(images, texts, scale):
    """The loss of the whole batch."""
    def picks(queries, keys):
        total = 0
        for i, query in enumerate(queries):
            scores = [scale * sum(a * b for a, b in zip(query, key)) for key in keys]
            total += math.log(sum(map(math.exp, scores))) - scores[i]
        return total
    return (picks(images, texts) + picks(texts, images)) / (2 * len(images))


def difference(f, at, step=1e-5):
    """df/dx of f(x), where `at` says how to set x by an offset."""
    return (f(*at(step)) - f(*at(-step))) / (2 * step)


def truth(images, texts):
    def moved(tower, i, j):
        def at(offset):
            towers = [[list(row) for row in images], [list(row) for row in texts]]
            towers[tower][i][j] += offset
            return (*towers, scale)
        return at
    gradients = [[[difference(clip, moved(tower, i, j)) for j in range(width)] for i in range(len(images))] for tower in (0, 1)]
    return gradients, difference(clip, lambda offset: (images, texts, scale + offset))


def write_safetensors(path, tensors):
    """`tensors` are shapes and f32 values by name."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def npy(shape, values, kind="f4"):
    """The bytes of an array as NumPy stores it."""
    letters = {"f4": "f", "f8": "d", "i8": "q"}
    axes = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    header = f"{{'descr': '<{kind}', 'fortran_order': False, 'shape': ({axes}), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}{letters[kind]}", *values)


def write_npz(path, tensors, kind="f4"):
    with zipfile.ZipFile(path, "w") as archive:
        for name, (shape, values) in tensors.items():
            archive.writestr(name + ".npy", npy(shape, values, kind))


def flat(matrix):
    return [x for row in matrix for x in row]


def dump(folder, factor_of_features, factor_of_scale=1.0, leave_out=()):
    """Of a framework whose reducer averages: each rank's features get W times the truth."""
    folder.mkdir()
    generator = random.Random(5)
    images, texts = ([[struct.unpack("f", struct.pack("f", generator.uniform(-1, 1)))[0] for _ in range(width)]
                      for _ in range(sum(rows))] for _ in range(2))
    (of_images, of_texts), of_scale = truth(images, texts)
    files, first = [], 0
    for rank, count in enumerate(rows):
        part = slice(first, first + count)
        first += count
        shape = [count, width]
        tensors = {"images": (shape, flat(images[part])), "texts": (shape, flat(texts[part])),
                   "images.grad": (shape, [ranks * factor_of_features * g for g in flat(of_images[part])]),
                   "texts.grad": (shape, [ranks * factor_of_features * g for g in flat(of_texts[part])]),
                   "scale": ([], [scale]), "scale.grad": ([], [factor_of_scale * of_scale])}
        files.append(folder / f"rank{rank}.safetensors")
        write_safetensors(files[-1], {name: tensor for name, tensor in tensors.items() if name not in leave_out})
    return files


def check(name, holds, run):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {name}: exit code {run.returncode}\n{run.stdout}{run.stderr}")


def weft(*words):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=60)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    right = weft("verify", "clip", "--dump", *dump(folder / "right", 1))
    check("a right gradient", right.returncode == 0 and "verdict: correct" in right.stdout, right)
    for factor, of_scale, signature in ((ranks, ranks, "S8"), (1 / ranks, 1 / ranks, "S9"), (1 / ranks, 1, "S3")):
        wrong = weft("verify", "clip", "--dump", *dump(folder / signature, factor, of_scale))
        check(signature, wrong.returncode == 1 and f"wrong: signature {signature}:" in wrong.stdout, wrong)
    unknown = weft("verify", "clip", "--dump", *dump(folder / "unknown", 0.77))
    check("an unknown cause", unknown.returncode == 1 and "wrong, unknown cause" in unknown.stdout, unknown)

    (folder / "S3/manifest.json").write_text('{"weft_manifest": 1, "loss": {"name": "clip"}}')
    read = weft("verify", folder / "S3", "--json")
    found = json.loads(read.stdout)
    check("JSON", read.returncode == 1 and found["verdicts"][0]["best"]["signature"] == "S3", read)
    power = weft("power", folder / "S3")
    check("power", power.returncode == 0 and "every signature would show" in power.stdout, power)

    ours = {f"layer.{i}": ((4, 8), [math.sin(i * 32 + j) for j in range(32)]) for i in (1, 2, 10)}
    write_safetensors(folder / "ours.safetensors", ours)

    def compare(name, code, said, theirs, *options, kind="f4"):
        write_npz(folder / "theirs.npz", theirs, kind)
        run = weft("compare", folder / "ours.safetensors", folder / "theirs.npz", *options)
        check(name, run.returncode == code and said in run.stdout, run)

    def changed(name, change):
        return {**ours, name: (ours[name][0], change(list(ours[name][1])))}

    compare("the same in another format", 0, "verdict: equal", ours)
    compare("the same but rounded", 0, "verdict: equal", ours, kind="f8")
    compare("rounded, where nothing may be", 1, "verdict: different", ours, "--limit", 0, kind="f8")
    off = {**changed("layer.10", lambda x: [1 + x[0], *x[1:]]), "layer.2": changed("layer.2", lambda x: [*x[:5], x[5] * 1.01, *x[6:]])["layer.2"]}
    compare("the first of two differences", 1, "first difference: layer.2\n", off)
    compare("where it differs", 1, "[5] ", off)
    compare("one element of many", 1, "first difference: layer.2\n", changed("layer.2", lambda x: [x[0] + 1e-5, *x[1:]]))
    # Megatron-LM 7452, finding 12: the second stage of a pipeline restores the layers of the first.
    compare("layers under the names of others", 1, "first difference: layer.2\n", {name: ours["layer.1"] for name in ours})
    compare("another name", 1, "layer.7: only in THEIRS", {**ours, "layer.7": ours["layer.1"]})
    compare("another shape", 1, "layer.1: shapes (4, 8) and (8, 4)", {**ours, "layer.1": ((8, 4), ours["layer.1"][1])})
    compare("not a number", 1, "first difference: layer.1\n", changed("layer.1", lambda x: [*x[:-1], math.nan]))
    (folder / "one").mkdir(), (folder / "other").mkdir()
    empty = weft("compare", folder / "one", folder / "other")
    check("nothing in two folders", empty.returncode == 2 and "cannot tell" in empty.stdout, empty)
    for place, last in (("one", 3), ("other", 4)):
        (folder / place / "counts.npy").write_bytes(npy((3,), [1, 2, last], "i8"))
        write_npz(folder / place / "activations.npz", {"x": ((2,), [math.nan, math.inf])})
    whole = weft("compare", folder / "one", folder / "other", "--json")
    found = json.loads(whole.stdout.replace("Infinity", "1e999"))
    check("folders", whole.returncode == 1 and found["first_difference"] == "counts: array" and found["tensors"][0]["error"] == 0, whole)

    info = weft("info", folder / "ours.safetensors")
    check("info", info.stdout == "".join(f"layer.{i}  f32 (4, 8)\n" for i in (1, 2, 10)), info)
    info = weft("info", folder / "one")
    check("info of a folder", info.stdout == "activations: x  f32 (2)\ncounts: array  i64 (3)\n", info)

    proofs = []
    for proof in (folder / "first.json", folder / "again.json"):
        run = weft("certify", folder / "S3", "-o", proof)
        check("certify", run.returncode == 1 and "verdict: wrong" in run.stdout, run)
        proofs.append((proof.read_bytes(), proof.with_suffix(".html").read_bytes()))
    proof, page = json.loads(proofs[0][0]), proofs[0][1].decode()
    check("the same certificate", proofs[0] == proofs[1], run)
    check("what it certifies", proof["outcome"] == "wrong" and proof["verdicts"][0]["best"]["signature"] == "S3" and
          [file["name"] for file in proof["files"]] == ["manifest.json"] + [f"rank{r}.safetensors" for r in range(ranks)], run)
    check("its hashes", all(file["sha256"] == hashlib.sha256((folder / "S3" / file["name"]).read_bytes()).hexdigest() for file in proof["files"]), run)
    check("its page", "signature S3: own slot re-inserted" in page and proof["files"][1]["sha256"] in page, run)
    with (folder / "S3/rank0.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x3e")
    weft("certify", folder / "S3", "-o", folder / "changed.json")
    check("a changed dump", json.loads((folder / "changed.json").read_text())["files"][1] != proof["files"][1], run)

    # A step of 100 ms, with one sum of 1 MB.
    (folder / "run").mkdir()
    recorded = {"seconds": 1, "communication": 0.5, "data": 0, "traffic": {"all_reduce": [10, 10_000_000, 0.5, 0]}}
    (folder / "run/sessions.json").write_text(json.dumps([{"first_step": 0, "last_step": 10, "images": 320, "ranks": [recorded] * 2}]))
    link = ["--latency", "1ms", "--bandwidth", "80Mbit", "--overhead", "0s"]
    run = weft("plan", folder / "run", *link, "--ranks", "2,4", "--json")
    planned = json.loads(run.stdout)
    check("a plan", [(step["ranks"], step["most_of_it"]) for step in planned] == [(2, "all_reduce"), (4, "all_reduce")] and
          math.isclose(planned[0]["seconds"], 0.1 + 3e-3 + (64 + 1e6) / 1e7) and
          math.isclose(planned[1]["seconds"], 0.1 + 5e-3 + (3 * 64 + 1.5e6) / 1e7), run)
    run = weft("plan", folder / "run", *link)
    check("a plan up to 16,384 ranks", run.stdout.count("\n") == 15 and " 16,384  " in run.stdout, run)

    for collective in ("all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast", "gather", "scatter", "all_to_all", "permute", "scan", "exscan"):
        run = weft("schedule", collective, "--bytes", 3072, "--ranks", 3)
        check(f"schedule {collective}", run.returncode == 0 and run.stdout.startswith(f"{collective} of 3 KiB on 3 ranks, over a link of "), run)
        if collective == "reduce":
            check("who sends what to whom", run.stdout.endswith(
                "  2. rank r gets the r-th slice of all tensors, and adds\n     0 -> 1 2  1 KiB each\n     1 -> 0 2  1 KiB each\n"
                "     2 -> 0 1  1 KiB each\n  3. rank r sends its sum to all who read it\n     1 -> 0  1 KiB\n     2 -> 0  1 KiB\n"), run)

    for what, words, code, said in (
            ("a certificate by another name", ["certify", folder / "S3", "-o", folder / "proof.txt"], 65, "ends in .json"),
            ("a certificate of nothing", ["certify", folder / "none", "-o", folder / "proof.json"], 66, "manifest.json"),
            ("info of nothing", ["info", folder / "nowhere.npy"], 66, "nowhere.npy"),
            ("no second file", ["compare", folder / "ours.safetensors", folder / "nowhere.npz"], 66, "nowhere.npz"),
            ("a file without tensors", ["compare", folder / "ours.safetensors", program], 65, "folder of these"),
            ("no manifest", ["verify", folder], 66, "manifest.json"),
            ("no gradient", ["verify", "clip", "--dump", *dump(folder / "less", 1, leave_out=("texts.grad",))], 65, "'texts.grad'"),
            ("no scalar", ["verify", "clip", "--dump", *dump(folder / "no scale", 1, leave_out=("scale",))], 65, "'scale'"),
            ("no such loss", ["verify", "clop", "--dump", folder / "right/rank0.safetensors"], 65, "no loss is called 'clop'"),
            ("no such file", ["verify", "clip", "--dump", folder / "nowhere"], 66, "nowhere"),
            ("a plan without a run", ["plan", folder / "nowhere", *link], 66, "nowhere; it is in the folder"),
            ("a plan from another file", ["plan", folder / "ours.safetensors", *link], 65, "ours.safetensors: sessions: byte 0"),
            ("a plan without a link", ["plan", folder / "run"], 64, "--latency is required"),
            ("a time without a unit", ["plan", folder / "run", *link, "--computing", "3"], 64, "--computing: '3' is not a number with a unit"),
            ("a link that carries nothing", ["plan", folder / "run", *link[:2], "--bandwidth", "0Mbit"], 64, "more than 0"),
            ("a plan for no ranks", ["plan", folder / "run", *link, "--ranks", "2,0"], 64, "--ranks"),
            ("a schedule of nothing", ["schedule", "reduce_all", "--bytes", "1"], 65, "there is no collective 'reduce_all'"),
            ("a link of one process", ["link"], 65, "by mpiexec"),
            ("no subcommand", [], 64, "subcommand")):
        run = weft(*words)
        check(what, run.returncode == code and said in run.stdout + run.stderr, run)
    (folder / "S3/manifest.json").write_text('{"weft_manifest": 1, "loss": {"name": "clip"}, "tensors": {"x": {"role": "y"}}}')
    check("no such role", weft("verify", folder / "S3").returncode == 65, weft("verify", folder / "S3"))
    (folder / "S3/manifest.json").write_text("{")
    check("no JSON", weft("verify", folder / "S3").returncode == 65, weft("verify", folder / "S3"))
    (folder / "S3/manifest.json").write_text('{"weft_manifest": 1, "tensors": {"images": {"role": "feature"}}}')
    check("a role without a loss", weft("verify", folder / "S3").returncode == 65, weft("verify", folder / "S3"))
    (folder / "S3/manifest.json").write_text('{"weft_manifest": 1}')
    nothing = weft("verify", folder / "S3")
    check("nothing to compare", nothing.returncode == 2 and "nothing was compared" in nothing.stdout, nothing)
    not_finite = weft("verify", "clip", "--dump", *dump(folder / "nan", math.nan))
    check("not finite", not_finite.returncode == 1 and "is not finite" in not_finite.stdout, not_finite)
    for option, said in (("temperature=x", "temperature=x: 'x' is not a number"), ("temperature", "--option is NAME=NUMBER, not 'temperature'"),
                         ("heat=1", "nt_xent has no option 'heat'"), ("temperature=0.5", "there are no features 'first' of nt_xent")):
        run = weft("verify", "nt_xent", "--option", option, "--dump", folder / "right/rank0.safetensors")
        check(option, run.returncode == 65 and said in run.stderr, run)

    cases = json.loads(weft("cases", "--json").stdout)
    named = [loss["name"] for loss in cases["losses"]]
    for loss in ("clip", "siglip", "nt_xent", "dcl", "info_nce"):
        written = weft("run", loss, "-o", folder / loss)
        check(f"run {loss}", loss in named and written.returncode == 0 and " on 3 ranks, in " in written.stdout, written)
        run = weft("verify", folder / loss)
        check(f"verify {loss}", run.returncode == 0 and f"the loss '{loss}': correct" in run.stdout, run)
    check("several cases of a name", "CLIP, one tower, gather" in weft("run", "clip", "-o", folder / "clip").stdout, run)
    for case, how_many in (("VICReg", 5), ("all_gather uneven", 3), ("distributed batch norm", 3), ("CLIP, local rows, ring", 5),
                           ("NT-Xent, memory bank", 3), ("observe", 2), ("SigLIP, ring", 1)):
        written = weft("run", case, "--ranks", how_many, "--seed", 4, "-o", folder / case)
        run = weft("verify", folder / case)
        check(f"run {case}", written.returncode == 0 and run.returncode == 0 and "the slopes along 'input.0'" in run.stdout, run)
        check(f"{case} is listed", any(each.lower().replace(" ", "") == case.lower().replace(" ", "") for each in cases["cases"]), run)
    for case in ("clip", "NT-Xent, ring", "all_gather uneven", "distributed batch norm"):
        written = weft("run", case, "--dtype", "f32", "-o", folder / "f32")
        run, listed = weft("verify", folder / "f32"), weft("info", folder / "f32/rank0.safetensors").stdout.splitlines()
        check(f"run {case} in f32", written.returncode == 0 and run.returncode == 0 and "verdict: correct" in run.stdout, run)
        of_run = [line for line in listed if line.startswith(("input.", "value", "cotangent", "reduced/"))]
        moved = [line for line in listed if line.startswith(("rank_loss", "objective", "direction"))]
        check(f"types of {case}", len(of_run) > 3 and all("  f32 " in line for line in of_run) and moved and all("  f64 " in line for line in moved),
              weft("info", folder / "f32/rank0.safetensors"))
    weft("run", "clip", "-o", folder / "clip again")
    contents = [[(file.name, file.read_bytes()) for file in sorted((folder / name).iterdir())] for name in ("clip", "clip again")]
    check("the same bytes", contents[0] == contents[1] and len(contents[0]) == 4, run)
    weft("run", "clip", "--seed", 2, "-o", folder / "clip again")
    check("other inputs", (folder / "clip again/rank0.safetensors").read_bytes() != contents[0][1][1], run)
    for what, case in (("a case that rounds", "FSQ, mask"), ("a case without elements", "all_reduce of nothing")):
        written = weft("run", case, "-o", folder / what)
        check(what, written.returncode == 0 and weft("verify", folder / what).returncode == 2, written)
    for words, code, said in ((["clop"], 65, "no case is called 'clop'; did you mean clip?"), (["clip", "--ranks", "0"], 64, "--ranks"),
                              (["local rows"], 65, "`weft cases` lists them"), (["clip", "--dtype", "f16"], 64, "--dtype"),
                              (["SimVQ, mask", "--dtype", "f32"], 65, "'SimVQ, mask' has a state of its own in f64, so it does not run in f32: ")):
        run = weft("run", *words, "-o", folder / "none")
        check(f"run {words}", run.returncode == code and said in run.stdout + run.stderr and not (folder / "none").exists(), run)
    for words in (["cases"], ["signatures"], ["--help"]):
        check(str(words), weft(*words).returncode == 0, weft(*words))
    with open("/dev/full", "w") as full:
        for words in (["verify", folder / "clip", "--json"], ["cases"]):
            run = subprocess.run([program, *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            check(f"{words} into a full disk", run.returncode == 74 and "the standard output cannot be written" in run.stderr, run)
    closed = ["sh", "-c", '"$@" <&- >&-', "sh", program, "certify", folder / "clip", "-o", folder / "closed.json"]
    run = subprocess.run(list(map(str, closed)), capture_output=True, text=True, timeout=60)
    check("a certificate is all that is in its file", run.returncode == 0 and json.loads((folder / "closed.json").read_text())["outcome"], run)
    manifest = folder / "clip/manifest.json"
    right = manifest.read_text()
    files = json.loads(right)["files"]
    (folder / "clip/link.safetensors").symlink_to(folder / "clip again" / files[0])
    for wrong in ("../clip again/" + files[0], str(folder / "clip" / ".." / "clip again" / files[0]), "link.safetensors"):
        manifest.write_text(right.replace(files[0], wrong, 1))
        run = weft("verify", folder / "clip")
        check(f"{wrong} is not read", run.returncode == 65 and "is not in the manifest's folder" in run.stderr, run)
    manifest.write_text(right.replace("{", '{"reducer": "sum", "reducer": "mean", ', 1))
    run = weft("verify", folder / "clip")
    check("a name that comes twice", run.returncode == 65 and '"reducer" comes twice in an object' in run.stderr, run)
    manifest.write_text(right.replace(files[0], "\\u001b[2J\\u009b2J\\u0007", 1))
    run = weft("verify", folder / "clip")
    check("a name moves no cursor", run.returncode == 66 and "?[2J" in run.stderr and not set("\x1b\x9b\x07") & set(run.stderr), run)
    manifest.unlink()
    os.mkfifo(folder / "clip/manifest.json")
    check("a pipe as manifest is not waited for", weft("verify", folder / "clip").returncode == 65, run)
sys.exit(1 if failures else 0)
