# SPDX-License-Identifier: Apache-2.0
"""Data sets that are wrong in one way each, and what the programs say about them. mistakes.py runs them."""
import gzip
import os
import shutil
import struct
import zlib

from picture_sets import npy, png, write


class BadSets:
    """Makes each set beside the good ones, which have 40 pictures."""

    def __init__(self, folder):
        self.folder = folder
        write(folder, 40)

    def files(self, name, contents):
        """A folder of files with these bytes."""
        for file, data in contents.items():
            path = self.folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return self.folder / name

    def changed(self, name, good, change):
        """A copy of a folder of pictures, changed."""
        shutil.copytree(self.folder / good, self.folder / name)
        change(self.folder / name)
        return self.folder / name

    def file(self, name, data):
        return self.files(".", {name: data}) / name


one = png([bytes(range(24))] * 8)


def damage(count, how):
    def change(folder):
        for path in sorted(folder.rglob("*.png"))[:count]:
            path.write_bytes(how(path.read_bytes()))
    return change


def wide_header(picture):
    """A picture that promises 10^10 pixels, with a right checksum."""
    header = b"IHDR" + struct.pack(">II", 100000, 100000) + picture[24:29]
    return picture[:12] + header + struct.pack(">I", zlib.crc32(header)) + picture[33:]


def rows(sets):
    """Options, the exit code, and a part of the message."""
    images = npy(b"\x05" * 40 * 64, "|u1", (40, 8, 8))
    folder = sets.folder
    broken = "of 40 pictures cannot be read; "
    yield {"--data": sets.files("empty", {"notes.txt": b"none"})}, 65, "empty: there are no pictures in it"
    yield {"--data": sets.files("mixed", {"a/1.png": one, "b/1.png": one, "2.png": one})}, 65, "1 pictures lie beside folders of pictures, first 2.png; each needs a class, or none"
    yield {"--data": sets.files("beside", {"train/a/1.png": one, "train/b/1.png": one, "test/a/1.png": one, "more/1.png": one})}, 65, "beside: more lies beside train"
    yield {"--data": sets.files("other class", {"train/a/1.png": one, "train/b/1.png": one, "test/a/1.png": one, "test/c/1.png": one})}, 65, "test has a class c, which train has not"
    yield {"--data": sets.files("half labelled", {"train/a/1.png": one, "train/b/1.png": one, "test/1.png": one})}, 65, "train has classes and test has none"
    yield {"--data": sets.files("tiny", {"train/1.png": one, "test/1.png": one})}, 65, "tiny: 1 picture to train on, but at least 2 are needed"
    yield {"--data": sets.files("all tests", {"train/a/notes": b"", "test/1.png": one})}, 65, "0 pictures to train on"
    yield {"--data": folder / "png", "--batch": 5000}, 64, "--batch 5000: there are only"
    yield {"--data": folder / "set.npy", "--batch": 37}, 64, "--batch 37: there are only 36 pictures to train on; take 36 or less"
    yield {"--data": folder / "png", "--cache": 1e-5}, 64, "40 pictures of 32 x 32 x 3 would take 120 KiB of memory, more than --cache allows (10.5 KiB); --size 9 would fit"
    yield {"--data": folder / "png", "--size": 5000}, 64, "--size: 5000 is too large, 4096 is the most"
    yield {"--data": folder / "png", "--cache": "much"}, 64, "--cache: 'much' is not a number that fits"
    yield {"--data": sets.changed("most broken", "unlabelled", damage(21, lambda data: data[:50]))}, 65, "21 " + broken
    yield {"--data": sets.changed("bombs", "unlabelled", damage(40, wide_header))}, 65, "; 0.png: 100000 x 100000 pixels, but at most 67108864 are read"
    yield {"--data": sets.changed("no pictures", "unlabelled", damage(40, lambda data: b"GIF89a"))}, 65, "; 0.png: neither a PNG nor a JPEG file"
    yield {"--data": sets.changed("nothing in them", "unlabelled", damage(40, lambda data: b""))}, 65, "; 0.png: empty; 1.png: empty; "
    yield {"--data": sets.file("one.png", one)}, 65, "one.png: neither a folder nor a file of many pictures"
    yield {"--data": sets.file("letter.npz", b"Dear reader")}, 65, "letter.npz: "
    yield {"--data": sets.file("cut.npy", images[:-1])}, 65, "cut.npy: "
    yield {"--data": sets.file("flat.npy", npy(bytes(40), "|u1", (40,)))}, 65, "flat.npy, images: images (n, h, w), (n, h, w, c) or (n, c, h, w)"
    yield {"--data": sets.file("loud.npy", npy(struct.pack("<f", 2) * 40 * 64, "<f4", (40, 8, 8)))}, 65, "value 0 is 2, but floating values have to be from 0 to 1"
    yield {"--data": sets.files("names", {"a.npy": images, "b.npy": images})}, 65, "no array is called images, x_train, train_images, x or data; there are a, b"
    yield {"--data": sets.files("few labels", {"images.npy": images, "labels.npy": npy(bytes(39), "|u1", (39,))})}, 65, "few labels, labels: 40 labels are needed"
    yield {"--data": sets.files("one labelled", {"images.npy": images, "test_images.npy": images, "labels.npy": npy(bytes(40), "|u1", (40,))})}, 65, "one part has labels and the other has none"
    yield {"--data": sets.file("cut.bin", bytes(3072))}, 65, "3072 bytes are no whole number of records of CIFAR-10"
    yield {"--data": sets.file("label.bin", b"\x0a" + bytes(3072))}, 65, "record 0 has the label 10, which is no class from 0 to 9"
    yield {"--data": sets.files("no training", {"test_batch.bin": bytes(3073)})}, 66, "data_batch_1.bin: no such file"
    yield {"--data": sets.file("cut.idx", gzip.compress(struct.pack(">IIII", 0x803, 40, 8, 8)))}, 65, "promises 2560 bytes, but only 0 follow"
    twice = struct.pack(">IIII", 0x803, 40, 8, 8) + bytes(2560)
    yield {"--data": sets.files("twice", {"first": twice, "second": twice})}, 65, "second: first has images of the same part"


def clip_rows(sets):
    """The same for train_clip."""
    pictures = sets.folder / "png"
    yield {"--data": sets.folder / "unlabelled"}, 64, "--captions: pictures without classes need a file of captions"
    for name, text, code, said in (
            ("nothing", "", 65, "nothing: there are no captions"),
            ("columns", "a,b\n1,2\n", 65, 'line 1: no column is called file_name or file; there are "a", "b"'),
            ("no text", "image,b\n1,2\n", 65, "line 1: no column is called caption or text"),
            ("fields", "image,caption\n1,2\n3\n", 65, "line 3: 1 fields, but the first line has 2"),
            ("quote", 'image,caption\n1,"2\n', 65, "line 2: a quote is not closed"),
            ("json", '{"image": "1", "text": "a"}\n{"image": 2}\n', 65, "line 2: no text is called file_name or file"),
            ("half", '{"image": "1", "text": "a"}\n{"image"\n', 65, "line 2: not a JSON object"),
            ("strange", "image,caption\nnowhere.png,words\n", 65, "only 0 of the training pictures")):
        yield {"--data": pictures, "--captions": sets.file(name, text.encode())}, code, said
    yield {"--data": pictures, "--captions": "nowhere.csv"}, 66, "nowhere.csv: cannot be opened: No such file"
    yield {"--data": sets.folder / "set.npz", "--captions": sets.folder / "captions.csv"}, 64, "--captions needs a folder of PNG and JPEG files"


def sound(sets):
    """Sets that are odd but can be trained, and what is said about them."""
    def clutter(folder):
        os.mkfifo(folder / "pipe.png")
        (folder / "back").symlink_to(folder)
        (folder / "lost.png").symlink_to("nowhere")
        (folder / "notes.txt").write_text("not a picture")
        damage(4, lambda data: data[:50])(folder)
    return sets.changed("cluttered", "unlabelled", clutter), (
        "warning: 4 of 40 pictures cannot be read; ", "; and 1 more; they are left out", "links that lead back: 1, left out",
        "what is no file: 2, left out", "other files: 1, left out")
