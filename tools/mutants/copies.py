# SPDX-License-Identifier: Apache-2.0
"""Copies of the tree with a build each, into which mistakes are written."""
import json
import pathlib
import shutil
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent.parent


def have(library):
    return subprocess.run(["pkg-config", "--exists", library]).returncode == 0


def have_mpi():
    return shutil.which("mpiexec") and (have("mpich") or have("ompi-cxx"))


def sources():
    """Every file that a build reads: beside the topmost meson.build, in folders that have one, documents and tools."""
    yield from (path for pattern in ("meson*", "*.md") for path in root.glob(pattern) if path.is_file())
    for folder in [*(build.parent for build in root.glob("*/meson.build")), root / "docs", root / "tools"]:
        yield from (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


class Copy:
    """A copy of the tree with its build; mistakes are written into it and taken back."""

    def __init__(self, folder, jobs=1):
        self.tree, self.build, self.jobs = folder, folder / "build", jobs

    def prepare(self, options):
        """Makes the sources those of the tree, and configures a build if there is none."""
        originals = {self.tree / path.relative_to(root): path for path in sources()}
        for copy in self.tree.rglob("*"):
            if copy.is_file() and copy not in originals and self.build not in copy.parents:
                copy.unlink()
        for copy, original in originals.items():
            if not copy.exists() or copy.read_bytes() != original.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(original, copy)
        if not (self.build / "build.ninja").exists():
            self.run(["meson", "setup", self.build, self.tree, *options])

    def another(self, folder):
        """Paths in a build are relative, so it can be copied."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.tree, folder, symlinks=True)
        return Copy(folder)

    def objects_of(self, source):
        """What is compiled from it: by itself, beside others in a file of Meson's, or as a copy."""
        commands = json.loads((self.build / "compile_commands.json").read_text())
        for command in commands:
            file = (self.build / command["file"]).resolve()
            beside = "-unity" in file.name and f"/{source}>" in file.read_text()
            if beside or file == self.tree / source or file.name == f"{pathlib.Path(source).name}.cpp":
                yield command["output"]

    def run(self, command):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def make(self, targets):
        """The compiler's complaint, or nothing."""
        rules = (self.build / "build.ninja").read_text()
        loaded = [f"tests/emulated_card/lib{name}.so.0" for name in ("cublas", "cublasLt", "cudnn")]  # tests load them
        loaded = [library for library in loaded if library in rules]
        command = ["ninja", "-C", self.build, f"-j{self.jobs}", *targets, *loaded]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode and done.stdout + done.stderr
