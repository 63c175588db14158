# SPDX-License-Identifier: Apache-2.0
"""Mistakes with networks, views and files of encoders: of train_contrastive, train_clip and evaluate. See mistakes.py."""


def check_encoder_files(way, program):
    """Mistakes with --init and --export, of the programs that have them."""
    letter, model = way.folder.parent / "letter", way.folder / f"model of {program.name}"
    way.expect(0, "weights ", program, model.name, {"--export": way.folder / "encoder"})
    bytes_of = (way.folder / "encoder").read_bytes()
    (way.folder / "damaged").write_bytes(bytes_of[:-3] + bytes([bytes_of[-3] ^ 1]) + bytes_of[-2:])
    (way.folder / "no folder of runs").mkdir(exist_ok=True)
    for given, code, text in (
        ({"--export": letter}, 74, "letter: cannot be written: it is a folder"),
        ({"--export": letter / "text" / "file"}, 74, "letter/text/file: cannot be created: Not a directory"),
        ({"--export": way.folder / "none" / "file"}, 74, "none/file: cannot be created: No such file or directory"),
        ({"--export": "/proc/encoder"}, 74, "/proc/encoder: cannot be created: "),
        ({"--export": None}, 64, "--export lacks its value"),
        ({"--export": "'\""}, 64, "cannot stand in a configuration"),
        ({"--init": "nowhere"}, 66, "nowhere: there is no such file"),
        ({"--init": letter / "text"}, 65, "letter/text: a header of"),
        ({"--init": way.folder / "damaged"}, 65, "damaged: tensor \""),
        ({"--init": way.folder / "no folder of runs"}, 66, "no folder of runs: no sound checkpoint is in it"),
        ({"--init": way.folder / "encoder", "--width": 3}, 65, "encoder: its encoder is another one: encoder.0.weight is f32 "
                                                               "(3, 3, 1, 2) in the file, not f32 (3, 3, 1, 3)"),
        ({"--init": model, "--width": 3}, 65, "step-000003.safetensors: its encoder is another one: encoder.0.weight is f32 (3, 3, 1, 2)"),
    ):
        way.expect(code, text, program, "none", given)
    way.check("no run is left", not (way.folder / "none").exists())
    way.expect(0, "weights ", program, "begun from a file", {"--init": way.folder / "encoder", "--batch": 16, "--seed": 3, "--dtype": "f64"})


def check_vq_beginnings(way, program, contrastive):
    """Mistakes with --init of the VQ programs; codes of another number are found anew."""
    letter, model = way.folder.parent / "letter", way.folder / f"model of {program.name}"
    way.expect(0, "weights ", program, model.name, {})
    checkpoint = f"{model.name}/checkpoints/step-000003.safetensors"
    another = f"{checkpoint}: its vq-vae is another one: vq-vae.encoder."
    for begun, given, code, text in (
        (program, {"--init": "nowhere"}, 66, "nowhere: there is no such file"),
        (program, {"--init": None}, 64, "--init lacks its value"),
        (program, {"--init": letter / "text"}, 65, "letter/text: a header of"),
        (program, {"--init": way.folder / "damaged"}, 65, "damaged: tensor \""),
        (program, {"--init": way.folder / "no folder of runs"}, 66, "no folder of runs: no sound checkpoint is in it"),
        (program, {"--init": way.folder / "encoder"}, 65, "encoder: its vq-vae is another one: vq-vae.encoder.0.weight is not in the file"),
        (program, {"--init": model, "--width": 3}, 65, another + "0.weight is f32 (4, 4, 1, 2) in the file, not f32 (4, 4, 1, 3)"),
        (program, {"--init": model, "--quantizer": "fsq"}, 65, another + "3.weight is f32 (1, 1, 4, 16) in the file, not f32 (1, 1, 4, 3)"),
        (contrastive, {"--init": model}, 65, f"{checkpoint}: its encoder is another one: encoder.0.weight is not in the file"),
    ):
        way.expect(code, text, begun, "none", given)
    way.check("no run is left", not (way.folder / "none").exists())
    of_another = {"--init": model, "--batch": 16, "--seed": 3, "--dtype": "f64", "--quantizer": "residual-vq", "--quiet=false": None}
    way.expect(0, "the others are random: vq.0.codes is not in the file", program, f"{program.name} from a file", of_another)


def check_evaluate(way, evaluate):
    """Mistakes with evaluate, on the encoder of a program before."""
    letter, model = way.folder.parent / "letter", way.folder / "encoder"
    (way.folder / "two lines").write_text("a bag\na boot\n")
    of_sentences = (
        ({"--model": model, "--sentences": letter / "text"}, 65, "letter/text: line 1: the encoder knows no word of it"),
        ({"--model": model, "--sentences": way.folder / "two lines"}, 65, "two lines: 2 lines for 10 classes"),
        ({"--model": model, "--sentences": "nowhere"}, 66, "nowhere: "),
    ) if (way.folder / "model of train_clip").exists() else (
        ({"--model": model, "--sentences": letter / "text"}, 64, "encoder was trained without sentences"),
    )
    for given, code, text in of_sentences + (
        ({"--model": "nowhere"}, 66, "nowhere: there is no such file"),
        ({"--model": letter / "text"}, 65, "letter/text: a header of"),
        ({"--model": letter}, 66, "letter: no sound checkpoint is in it"),
        ({"--model": way.folder / "damaged"}, 65, "damaged: tensor \""),
        ({"--model": model, "--data": "nowhere"}, 66, "nowhere: no such file or folder; docs/data.md says what --data may name"),
        ({"--model": model, "--embeddings": letter}, 74, "letter: cannot be written: it is a folder"),
        ({"--model": model, "--export": letter / "text" / "file"}, 74, "letter/text/file: cannot be created: Not a directory"),
        ({"--model": model, "--draws": 0}, 64, "--draws: 0 is too small, 1 is the least"),
        ({"--model": model, "--labels-per-class": -1}, 64, "--labels-per-class: -1 is too small, 0 is the least"),
        ({"--model": model, "--neighbours": 0}, 64, "--neighbours: 0 is too small, 1 is the least"),
        ({"--model": model, "--batch": 32}, 64, "there is no option --batch"),
        ({"--model": model, "--labels-per-class": 1000}, 0, "linear probe, 1000 labels per class"),
    ):
        words = [str(word) for pair in {"--data": way.data, **given}.items() for word in pair]
        way.expect_of([*way.launcher, evaluate, *way.threads, *words], code, text)


def check_views(way, program):
    """Mistakes in the options that train_contrastive adds."""
    for given, text in (
        ({"--temp": 1}, "there is no option --temp; did you mean --temperature?"),
        ({"--arch": "conv"}, "there is no option --arch; did you mean --encoder?"),
        ({"--model": "conv"}, "there is no option --model; did you mean --encoder?"),
        ({"--encoder": "resnet"}, "among conv, mlp, stages, residual, resnet18; did you mean resnet18?"),
        ({"--parts": 0}, "--parts: 0 is too small, 1 is the least"),
        ({"--method": "simclr"}, "among pairs, moco, byol, supcon, swav, dino; did you mean pairs?"),
        ({"--method": "byol", "--zero": 3}, "--method byol needs whole parameters on every rank, and --zero 3 divides"),
        ({"--method": "moco", "--dtype": "bf16"}, "--method moco averages weights over many steps, and --dtype bf16"),
        ({"--teacher-momentum": 2}, "--teacher-momentum: 2 is too large, 1 is the most"),
        ({"--bank": 0}, "--bank: 0 is too small, 1 is the least"),
        ({"--prototypes": 1}, "--prototypes: 1 is too small, 2 is the least"),
        ({"--min-area": 0}, "--min-area: 0 is too small, 0.01 is the least"),
        ({"--max-stretch": 0.5}, "--max-stretch: 0.5 is too small, 1 is the least"),
        ({"--flip": 2}, "--flip: 2 is too large, 1 is the most"),
        ({"--brightness": 2}, "--brightness: 2 is too large"),
        ({"--contrast": -1}, "--contrast: -1 is too small"),
        ({"--saturation": 2}, "--saturation: 2 is too large"),
        ({"--hue": 0.6}, "--hue: 0.6 is too large, 0.5 is the most"),
        ({"--grayscale": "yes"}, "--grayscale: 'yes' is not a number that fits"),
        ({"--blur": 2}, "--blur: 2 is too large"),
        ({"--erase": None}, "--erase lacks its value"),
    ):
        way.expect(64, text, program, "none", given)


def check_collapse(way, program):
    """A rate that ruins the network is named, and ends the run if that is asked for."""
    ruined = {"--rate": 10, "--width": 8, "--steps": 30}
    named = "step 25: the network has collapsed: it gives all pictures nearly the same features"
    run = way.run(program, "collapsed", {**ruined, "--stop-if-collapsed": None})
    way.check("a collapse ends the run", run.returncode == 92 and run.stderr.count(named) == 1, run)
    way.expect(0, named, program, "collapsed", ruined)
