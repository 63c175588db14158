#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the files, names and commands in the documents, and runs the training commands at a small size. (Code,
messages and pictures are checked by test_documents.) Prints what it has checked, and each mistake as file:line.

    tests/documents/check.py ROOT BUILD PROGRAM [--mpiexec NAME]      (PROGRAM: the documents' own, made by generate.py)
"""
import argparse
import functools
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from blocks import all_documents, is_made, where
from course import edit_of
from reading import terms_in_order

small = {"--steps": 2, "--batch": 24, "--width": 2}  # unless the command sets them

# Inline code that is not Weft's: of languages, of other programs, of users' programs.
foreign = {"PascalCase", "snake_case", "MPI_ABORT", "num_codebooks", "--oversubscribe", "--allow-run-as-root",
           "subprojects/weft", "run/step-000120.safetensors"}
other_letter = re.compile(r"\b[Nn] (\*?ranks|times)\b|\bfactor (of )?[Nn]\b|_\([Nn] ?- ?1\)")
braces = re.compile("[{}]")
# Data sets that the documents name, and what tests/apps/picture_sets.py calls them.
sets = {"photos": "png", "unlabelled_photos": "unlabelled", "cifar-10-batches-bin": "cifar", "pictures.npy": "set.npy",
        "pictures.npz": "set.npz", "emnist": "idx", "captions.csv": "captions.csv"}


class Tree:
    """Files, names in the sources, and programs of a build."""

    def __init__(self, root, build):
        self.root = root
        tops = [path for path in root.iterdir() if not is_made(path) and path.name != ".git"]
        self.paths = [path.relative_to(root) for top in tops for path in (top, *top.rglob("*"))]
        files = [root / path for path in self.paths if path.suffix not in (".md", ".json")]
        self.text = "\n".join(path.read_text(errors="ignore") for path in files if path.is_file())
        self.words = set(re.findall(r"\w+", self.text))
        targets = json.loads((build / "meson-info/intro-targets.json").read_text())
        self.programs = {target["name"]: target["filename"][0] for target in targets if target["type"] == "executable"}

    def has(self, name, beside="."):
        """Whether a path exists from the root, from a document's folder, or as the end of one; under build/ a
        program."""
        name, last = name.rstrip("/").removeprefix("./"), name.rstrip("/").split("/")[-1]
        if name.startswith("build/"):
            return name.count("/") == 1 or last in self.programs or f"'{last}'" in self.text
        ends = f"/{name}"
        return bool(any(self.root.glob(name)) or (self.root / beside / name).exists() or
                    any(f"/{path}".endswith(ends) for path in self.paths))

    @functools.cache
    def members(self, name):
        """The words between the braces of every type of this name; none if Weft has no such type."""
        words = set()
        for begin in re.finditer(rf"\b(?:class|struct|enum) (?:class )?(?:\w+::)*{name}\b[^;{{}}()]*{{", self.text):
            depth, end = 1, begin.end()
            while depth and (brace := braces.search(self.text, end)):
                depth, end = depth + (1 if brace[0] == "{" else -1), brace.end()
            words |= set(re.findall(r"\w+", self.text[begin.end():end]))
        return words


class Checker:
    def __init__(self, tree, folder, mpiexec):
        self.tree, self.folder, self.mpiexec = tree, folder, mpiexec
        self.complaints, self.done, self.not_run = [], {}, []

    def expect(self, place, holds, what):
        if not holds:
            self.complaints.append(f"{where(place)}: {what}")
        return holds

    def count(self, what):
        self.done[what] = self.done.get(what, 0) + 1

    # Files and names.

    def check_links(self, document):
        text = "\n".join(document.text)
        for found in re.finditer(r"\]\((?!http)([^)\s#]*)#?([^)\s]*)\)", text):
            place = (document.name, text.count("\n", 0, found.start()) + 1)
            path = self.tree.root / document.name
            path = path.parent / found[1] if found[1] else path
            if self.expect(place, path.exists(), f"there is no {found[1]}") and found[2]:
                headings = re.findall(r"^#+ (.*)", path.read_text(), re.M)
                anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                self.expect(place, found[2] in anchors, f"there is no heading #{found[2]}")
            self.count("links")

    def check_inline(self, place, text):
        if text in foreign:
            return
        if re.match(r"(\./|build/|tools/|tests/|bench/|meson |g\+\+ |weft_bench |train_)\S* ?", text) and " " in text:
            self.check_commands(place, text)
        elif re.fullmatch(r"\.?[\w.*-]+/[\w./*-]*", text):
            self.expect(place, self.tree.has(text, pathlib.Path(place[0]).parent), f"there is no {text}")
            self.count("paths in the text")
        elif option := re.fullmatch(r"-D(?:weft:)?(\w+)=\S+|(--[a-z-]+)( \w+)?", text):
            known = f"option('{option[1]}'" if option[1] else f'"{option[2]}"'
            self.expect(place, known in self.tree.text, f"there is no option {text}")
            self.count("options in the text")
        else:
            for word in re.findall(r"(?<![\w.<])[A-Za-z_]\w{2,}", text):
                self.expect(place, word in self.tree.words, f"{word} in `{text}` is nowhere in the sources")
            for name, member in re.findall(r"(\w+)::(?=(\w+))", text):
                members = self.tree.members(name)
                self.expect(place, not members or member in members, f"{name} has no {member}")
            self.count("names in the text")

    def check_edit(self, block):
        """Whether its old text is in the example; course.py makes the edit."""
        if edit_of(block.argument, block.lines).source() is None:
            self.complain(block.place, f"the old text is not once in examples/{block.argument}.cpp")
        self.count("edits of examples")

    def check_quotation(self, block):
        """Checks that its lines are in the file in this order."""
        source, at = " ".join((self.tree.root / block.argument).read_text().split()), 0
        for piece in (piece for line in block.lines for piece in " ".join(line.split()).split("...")):
            found = source.find(piece.strip(), at)
            if not self.expect(block.place, found >= 0, f"{block.argument} has not, or not here: {piece.strip()}"):
                return
            at = found + len(piece.strip())
        self.count("quotations")

    def check_terms(self):
        """Whether the pages for learners tell every term before they use it, in the order in which they are read."""
        for name, line, term, told in terms_in_order(self.tree.root):
            self.expect((name, line), told, f"'{term}' is used before it is told")
            self.count("terms that learners are told first")

    def check_tree(self, block):
        for folder in re.findall(r"[\w/]+/(?=[\s)]|$)", "\n".join(block.lines)):
            self.expect(block.place, self.tree.has(folder), f"there is no folder {folder}")
        self.count("trees")

    def check_letter(self, document):
        """The number of ranks is W everywhere."""
        for number, line in enumerate((self.tree.root / document.name).read_text().splitlines(), 1):
            self.expect((document.name, number), not other_letter.search(line), f"the number of ranks is W: {line}")

    # Tables that name files.

    def check_tables(self, document):
        """In a table with a column `file`, each row links to one or more files. They contain the row's `names`."""
        columns = None
        for number, line in enumerate(document.text, 1):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if not line.startswith("|") or columns is None:
                columns = cells or None
            elif "file" in columns:
                self.check_row((document.name, number), dict(zip(columns, cells)))

    def check_row(self, place, row):
        beside = (self.tree.root / place[0]).parent
        paths = [beside / link for link in re.findall(r"\]\(([^)]+)\)", row["file"])]
        texts = [path.read_text() for path in paths if path.is_file()]
        for name in re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", row.get("names", "")))):
            there = any(re.search(rf"\b{name}\b", text) for text in texts)
            self.expect(place, there, f"{name} is not in {row['file']}")
        self.count("rows of tables that name files")

    def check_signatures(self):
        """The table of all signatures has the texts of the verifier."""
        source = (self.tree.root / "tools/weft/signatures/signatures.cpp").read_text()
        entry = re.compile(r'\{' + r',\s*'.join([r'"([^"]*)"'] * 4) + r'\}')
        rows = (self.tree.root / "docs/verify.md").read_text()
        for mistake in entry.findall(re.sub(r'"\s*\n\s*"', "", source)):
            row = "| " + " | ".join(text or "none is needed" for text in mistake) + " |"
            self.expect(("docs/verify.md", 1), row in rows, f"there is no row {row}")
            self.count("signatures")

    # Commands.

    def check_commands(self, place, line):
        for command in re.sub(r"(^|\s)#.*", "", line).split("&&"):
            if command.strip():
                self.check_command(place, command.strip())

    def check_command(self, place, command):
        words = shlex.split(re.sub(r"\$\([^)]*\)", "substituted", command))
        launch, (program, *rest) = ([self.mpiexec, *words[1:3]], words[3:]) if words[0] == "mpiexec" else ([], words)
        if program == "./run":
            program = rest.pop(0) if rest and re.match("train_|evaluate$", rest[0]) else "train_contrastive"
            rest = rest if "--ranks" in rest else ["--ranks", "2", *rest]
        if program == "./examples/run":
            return self.check_example(place, command, *rest)
        name = program.split("/")[-1]
        if name.startswith("train_"):
            return self.check_training(place, command, launch, name, rest)
        known = self.tree.has(program) or shutil.which(name) or f"'{name}'" in self.tree.text
        self.expect(place, known, f"there is no program {program}")
        script = self.tree.root / program
        text = self.tree.text if program.startswith("build/") or not script.is_file() else script.read_text()
        for option in (word for word in rest if word.startswith("-")):
            meson = re.match(r"-D(\w+)=", option)
            there = f"option('{meson[1]}'" in self.tree.text if meson else option.lstrip("-").split("=")[0] in text
            self.expect(place, there, f"{program} has no option {option}")
        if name.startswith("test_") and name in self.tree.programs:  # the tests that the command selects
            listed = subprocess.run([self.tree.programs[name], "--list-tests", *rest], capture_output=True, text=True)
            there = re.search(r"^[1-9]\d* matching test", listed.stdout, re.M)
            self.expect(place, there, f"{name} has no test {rest}")
        self.not_run.append(f"{where(place)}: {command}")

    def check_example(self, place, command, name=""):
        """Runs what the command would build; without a name it lists the examples."""
        names = sorted(path.stem for path in self.tree.root.glob("examples/*.cpp"))
        if not self.expect(place, not name or name in names, f"there is no example {name}"):
            return
        run = subprocess.run([self.tree.programs[name] if name else self.tree.root / "examples/run"], capture_output=True, text=True)
        self.expect(place, run.returncode == 0, f"{command} ends with {run.returncode}: {run.stderr.strip()}")
        if not name:
            listed = sorted(line.split()[0] for line in run.stdout.splitlines())
            self.expect(place, listed == names, f"{command} lists {listed}, and there are {names}")
        self.count("commands with an example, run")

    def check_training(self, place, command, launch, name, rest):
        if name not in self.tree.programs or launch and not self.mpiexec:
            return self.not_run.append(f"{where(place)}: {command}")
        run = self.trained(launch, name, [*rest, "--quiet"])
        ends = f"{command}, in small, ends with {run.returncode}: {run.stderr.strip()}"
        self.expect(place, run.returncode == 0, ends)
        self.count("commands that train, run in small")

    def trained(self, launch, name, rest):
        options = [str(word) for option, value in small.items() if option not in rest for word in (option, value)]
        rest = [str(self.folder / "sets" / word) if word in sets else word for word in rest]
        with tempfile.TemporaryDirectory(dir=self.folder) as out:
            data = [] if "--data" in rest else ["--data", self.folder / "data"]
            places = [*data, "--out", f"{out}/runs/{name}"]
            command = [*launch, self.tree.programs[name], *rest, *options, *places]
            run = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)  # where later commands find files
            run.stdout = run.stdout.replace(f"{out}/", "")
            return run

    def check_output(self, block):
        """Compares the program's output line by line, apart from numbers; a line may be broken in the document."""
        def without_numbers(text):
            text = re.sub(r"\d+:\d\d|\d[\d.]* m?s\b", "TIME", " ".join(text.split()))
            return re.sub(r"\b[0-9a-f]{16}\b|\d[\d.]*k?", "N", text)
        name, *rest = shlex.split(block.argument.removeprefix("of "))
        if name not in self.tree.programs:
            return self.not_run.append(f"{where(block.place)}: {block.argument}")
        if (self.tree.root / f"examples/{name}.cpp").is_file():
            run = subprocess.run([self.tree.programs[name]], capture_output=True, text=True)
            self.expect(block.place, "\n".join(block.lines) in run.stdout, f"{name} prints {run.stdout}")
            return self.count("outputs of examples")
        printed = {without_numbers(line) for line in self.trained([], name, rest).stdout.splitlines()}
        left = without_numbers(" ".join(block.lines))
        while left:
            begin = max((line for line in printed if left.startswith(line)), key=len, default="")
            if not self.expect(block.place, begin, f"{name} does not print: {left}; it prints: {sorted(printed)}"):
                return
            left = left[len(begin):].strip()
        self.count("outputs")

    def check_program(self, program):
        for launch in [[], [self.mpiexec, "-n", "2"]] if self.mpiexec else [[]]:
            run = subprocess.run([*launch, program], capture_output=True, text=True)
            place = ("the documents' program", " ".join(launch))
            self.expect(place, run.returncode == 0, f"ends with {run.returncode}: {run.stderr}")
            self.count("runs of the program")

    def check(self, document):
        self.check_links(document)
        self.check_tables(document)
        self.check_letter(document)
        for inline in document.inline():
            self.check_inline(*inline)
        for block in document.blocks:
            if block.kind == "cpp" and (self.tree.root / block.argument).is_file():
                self.check_quotation(block)
            elif block.kind == "bash":
                for line in block.lines:
                    self.check_commands(block.place, line)
            elif block.kind == "output":
                self.check_output(block)
            elif block.kind == "edit":
                self.check_edit(block)
            elif block.kind == "tree":
                self.check_tree(block)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--mpiexec")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make = options.root / "tests/apps/small_data.py"
        subprocess.run([sys.executable, make, f"{folder}/data", "--train", "96", "--test", "32"], check=True)
        subprocess.run([sys.executable, options.root / "tests/apps/picture_sets.py", f"{folder}/sets"], check=True)
        for name, made in sets.items():
            pathlib.Path(folder, "sets", made).rename(pathlib.Path(folder, "sets", name))
        checker = Checker(Tree(options.root, options.build), pathlib.Path(folder), options.mpiexec)
        for document in all_documents(options.root):
            checker.check(document)
        checker.check_signatures()
        checker.check_terms()
        checker.check_program(options.program)
    for what, count in sorted(checker.done.items()):
        print(f"{count:4} {what}")
    print(f"{len(checker.not_run):4} commands whose programs and options exist, but which are not run:")
    print("".join(f"       {command}\n" for command in checker.not_run), "\n".join(checker.complaints), sep="")
    return 1 if checker.complaints else 0


sys.exit(main())
