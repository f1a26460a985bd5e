#!/usr/bin/env python3
"""Does prepack for Arm do what prepack for this machine does, byte by byte and figure by figure?

Converts checkpoints of fixtures/ to every target with both programs, after plan and before verify, and has both check
and inspect them, and diff each with the next. Compared are exit codes, what goes to stderr, the documents of --json,
and all files that are written. Figures of verification may differ in their last digits: the reference sums products
in another order.

    compare.py NATIVE ARM [WORD...] [--every N [--first I]] [--jobs N]

NATIVE is the program of this machine, ARM WORD... the command for that of Arm, with the emulator that runs it.
"""

import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures/checkpoints"
RELATIVE = 1e-9  # that figures may differ by
# Both run with the reference engine: oneDNN rounds for the CPU that it finds, and is not in every build for Arm.
VERIFY = ["--engine", "reference", "--json"]


def run(program, arguments, folder):
    done = subprocess.run([*program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    try:
        out = json.loads(done.stdout)
    except ValueError:
        out = done.stdout
    return {"exit": done.returncode, "stdout": out, "stderr": done.stderr}


def differences(a, b, place=""):
    """Where two documents differ, as texts."""
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        for key in a:
            yield from differences(a[key], b[key], f"{place}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (one, other) in enumerate(zip(a, b)):
            yield from differences(one, other, f"{place}[{i}]")
    elif isinstance(a, float) and isinstance(b, float):
        if not math.isclose(a, b, rel_tol=RELATIVE, abs_tol=1e-12):
            yield f"{place}: {a!r} here, {b!r} on Arm"
    elif a != b:
        yield f"{place}: {a!r} here, {b!r} on Arm"


def files_of(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Comparison:
    """What both programs make of one checkpoint and one target; None: of the checkpoint alone."""

    def __init__(self, programs, sources, number, target):
        self.programs, self.source, self.target = programs, sources[number], target
        self.next = sources[(number + 1) % len(sources)]
        self.found, self.commands, self.bytes = [], 0, 0

    def both(self, folders, name, arguments):
        results = [run(program, arguments, folder) for program, folder in zip(self.programs, folders)]
        self.commands += 1
        self.found += [f"{self.source.name}, {self.target or 'alone'}, {name}{text}" for text in differences(*results)]
        return results[0]["exit"]

    def run(self):
        with tempfile.TemporaryDirectory() as scratch:
            folders = [pathlib.Path(scratch, name) for name in ("native", "arm")]
            for folder in folders:
                folder.mkdir()
            source = str(self.source)
            if self.target is None:
                self.both(folders, "check", ["check", source, "--json"])
                self.both(folders, "inspect", ["inspect", source, "--json"])
                self.both(folders, "diff", ["diff", source, str(self.next), "--json"])
                return self
            convert = ["convert", source, "-o", "out", "-t", self.target, "--fallback", "dequantize"]
            self.both(folders, "plan", ["plan", source, "-t", self.target, "--json"])
            if self.both(folders, "convert", [*convert, "--no-flush", "--json"]) == 0:
                files = [files_of(folder / "out") for folder in folders]
                self.found += [f"{self.source.name}, {self.target}, file {text}" for text in differences(*files)]
                self.bytes = sum(path.stat().st_size for path in (folders[0] / "out").rglob("*") if path.is_file())
                self.both(folders, "verify", ["verify", "out", "--source", source, *VERIFY])
        return self


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("native")
    parser.add_argument("arm", nargs="+")
    parser.add_argument("--every", type=int, default=1, help="only each N-th pair of checkpoint and target")
    parser.add_argument("--first", type=int, default=0, help="the pair to begin with, from 0 on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    # They run in other folders.
    programs = [
        [str(pathlib.Path(word).resolve()) if pathlib.Path(word).is_file() else word for word in words]
        for words in ([options.native], options.arm)
    ]
    if shutil.which(options.arm[0]) is None:
        sys.exit(f"error: compare: {options.arm[0]} is not there")
    names = [row["target"] for row in run(programs[0], ["targets", "--json"], ".")["stdout"]["targets"]]
    sources = sorted(FIXTURES.iterdir())
    pairs = [(number, target) for number in range(len(sources)) for target in [None, *names]]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(lambda pair: Comparison(programs, sources, *pair).run(), pairs[options.first :: options.every]))
    found = [text for comparison in done for text in comparison.found]
    print("\n".join(found[:50]))
    written = [comparison.bytes for comparison in done if comparison.bytes]
    print(f"{len(done)} of {len(pairs)} pairs of checkpoint and target: {sum(c.commands for c in done)} commands, "
          f"{len(written)} folders of {sum(written) / 1e6:.0f} MB in all, {len(found)} differences")
    if not written:
        sys.exit("error: compare: nothing was converted")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
