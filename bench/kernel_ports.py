#!/usr/bin/env python3
"""What the arithmetic units of a CPU allow the loops of the kernels, by llvm-mca: without the caches.

    bench/kernel_ports.py [--level avx512] [--cpu znver4,sapphirerapids] [FUNCTION...]

For every innermost loop with vectors of the functions whose name has FUNCTION in it: how many cache lines it stores at
a time, and for each of them the instructions, the vector loads and stores, and those that move data between the places
of a register (shuffles); then the cycles per line that llvm-mca gives for the busiest unit (bound) and for its whole
schedule (cycles). memcpy of lines in the L2 cache takes about 4 cycles each on Zen 4.

Wants build/release to be configured, and llvm-mca 19 (Debian: llvm-19).
"""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINE = 64
SHUFFLE = re.compile(r"v(punpck|shuf|perm|pshuf|palign|insert|extract|align)")
STACK = ("(%rsp)", "(%rbp)")  # registers that did not fit
WIDTHS = {"z": 64, "y": 32, "x": 16}


def assembly(level):
    """The assembly of the level's kernels, as the build's own compiler makes it."""
    commands = json.loads((ROOT / "build" / "release" / "compile_commands.json").read_text())
    source = next((c for c in commands if c["file"].endswith(f"/kernels/kernels_{level}.cpp")), None)
    if source is None:
        sys.exit(f"error: build/release has no kernels_{level}.cpp: configure it, or choose another --level")
    words = shlex.split(source["command"])
    at = words.index("-o")
    del words[at:at + 2]
    words = [word for word in words if word != "-c"] + ["-S", "-o", "-"]
    if "ccache" in words[0]:
        words = words[1:]
    return subprocess.run(words, cwd=source["directory"], check=True, capture_output=True, text=True).stdout


def functions(text):
    """(demangled name, lines of the body) of every function."""
    names = subprocess.run(["c++filt", "-p"], input=text, check=True, capture_output=True, text=True).stdout
    for match in re.finditer(r"^([^\s.][^\n]*):\n(.*?)^\t\.cfi_endproc", names, re.MULTILINE | re.DOTALL):
        yield re.sub(r"^.*?prepack::\w+::|\(anonymous namespace\)::", "", match[1]), match[2].split("\n")


def innermost_loops(body):
    """Lists of instructions: from a label to the jump back to it, with vectors and without such a loop inside."""
    labels, code = {}, []
    for line in body:
        if label := re.match(r"(\.L\w+):", line):
            labels[label[1]] = len(code)
        elif re.match(r"\t[a-z]", line):
            code.append(line.strip())
    loops = []
    for i, line in enumerate(code):
        jump = re.match(r"j\w+\s+(\.L\w+)$", line)
        if jump and labels.get(jump[1], i + 1) <= i and any("mm" in c for c in code[labels[jump[1]]:i]):
            loops.append((labels[jump[1]], i + 1))
    for first, last in loops:
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in loops):
            yield code[first:last]


def counts(loop):
    """(bytes stored, vector loads, vector stores, shuffles) of a loop."""
    stored = loads = stores = shuffles = 0
    for line in loop:
        if not line.startswith("v"):
            continue
        shuffles += bool(SHUFFLE.match(line))
        if line.endswith(STACK):
            continue
        if store := re.search(r"%([xyz])mm\d+, [^,]*\(%[^)]*\)$", line):
            stores += 1
            stored += WIDTHS[store[1]] // (2 if line.startswith("vextract") else 1)
        elif "(%" in line:
            loads += 1
    return stored, loads, stores, shuffles


def analyse(loop, cpu):
    """(cycles of the busiest unit, cycles of the whole schedule) of a turn of the loop."""
    run = subprocess.run(["llvm-mca-19", "-mtriple=x86_64", f"-mcpu={cpu}", "-iterations=200"],
                         input="\n".join(loop) + "\n", capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"error: llvm-mca-19 --mcpu={cpu}: {run.stderr.strip()}")
    total = int(re.search(r"Total Cycles:\s+(\d+)", run.stdout)[1])
    return float(re.search(r"Block RThroughput:\s+([\d.]+)", run.stdout)[1]), total / 200


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="avx512")
    parser.add_argument("--cpu", default="znver4,sapphirerapids")
    parser.add_argument("function", nargs="*")
    arguments = parser.parse_args()
    cpus = arguments.cpu.split(",")
    print(f"{'per cache line stored':<44}lines instr. loads stores shuffles" +
          "".join(f"  {cpu + ' bound':>20} cycles" for cpu in cpus))
    for name, body in functions(assembly(arguments.level)):
        if arguments.function and not any(f in name for f in arguments.function):
            continue
        for loop in innermost_loops(body):
            stored, loads, stores, shuffles = counts(loop)
            if stored < LINE:
                continue
            lines = stored / LINE
            row = f"{re.sub(r'[(].*', '', name)[:43]:<44}{lines:5.0f} {len(loop) / lines:6.1f} "
            row += f"{loads / lines:5.1f} {stores / lines:6.1f} {shuffles / lines:8.1f}"
            for cpu in cpus:
                bound, cycles = analyse(loop, cpu)
                row += f"  {bound / lines:20.2f} {cycles / lines:6.2f}"
            print(row)


if __name__ == "__main__":
    main()
