#!/usr/bin/env python3
"""Writes docs/layouts/ from what `prepack targets --json` and `prepack plan --json` say.

    tools/layouts_doc/layouts_doc.py [--prepack PROGRAM] [--check]

--check writes nothing, and fails if a page is not what would be written. The prose is in the
templates beside this script: overview.template for the README, page.template for every layout, and
NAME.template for what only the page NAME.md says.
"""

import argparse
import json
import pathlib
import string
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDER = ROOT / "docs" / "layouts"
CHECKPOINTS = ROOT / "fixtures" / "checkpoints"
PLANS = ROOT / "fixtures" / "plans.txt"

# Conversions of bundled checkpoints. The page of a layout shows the first that writes it, else the first of PLANS.
CONVERSIONS = [
    ("ct-w4a16-g32-asym", ""),
    ("ct-w4a8", ""),
    ("ct-w8a8-dynamic", ""),
    ("ct-w8a8-static", ""),
    ("ct-fp8-block", ""),
    ("ct-fp8-block", "--scheme w8a8"),
    ("gpt-oss-mxfp4", ""),
    ("ct-w8a16-g128-sym", "--fallback dequantize"),
    ("gptqmodel-gpt2-w8", "--fallback dequantize"),
    ("gpt-oss-mxfp4", "--fallback dequantize"),
]

# Checkpoints of every kind that vLLM chooses a kernel for: how the README calls one, a bundled one,
# options.
CHOICES = [
    ("compressed-tensors, 4 bits symmetric", "ct-w4a16-g128-sym", ""),
    ("the same, f16 activations", "ct-w4a16-g128-sym", "--dtype f16"),
    ("compressed-tensors, 4 bits asymmetric", "ct-w4a16-g32-asym", ""),
    ("GPTQ or AWQ, 4 bits", "gptqmodel-w4-sym-g128", ""),
    ("GPTQ, 4 bits with activation order", "gptqmodel-w4-actorder-g128", ""),
    ("int8, dynamic symmetric activations", "ct-w8a8-dynamic", ""),
    ("int8, static symmetric activations", "ct-w8a8-static", ""),
    ("int8, asymmetric activations", "ct-w8a8-asym-act", ""),
    ("int8 weights, 16-bit activations", "ct-w8a16-g128-sym", "--fallback dequantize"),
    ("FP8, scales per block", "ct-fp8-block", ""),
    ("FP8, one scale", "ct-fp8-tensor", ""),
    ("FP8, scales per channel", "ct-fp8-dynamic", ""),
    ("MXFP4, experts", "gpt-oss-mxfp4", ""),
]

PYTHON = "[Python package](../../integrations/python/README.md)"
PLUG_IN = "[vLLM plug-in](../../integrations/vllm/README.md#layouts)"
VLLM_READERS = f"""- Folders are loaded by the {PLUG_IN}, and opened by
  the {PYTHON}"""
READERS = {
    "vllm-cpu": VLLM_READERS,
    "zentorch": VLLM_READERS,
    "vllm-arm": VLLM_READERS,
    "onednn": f"""- Folders are run by [onednn_consumer](../../examples/onednn_consumer/README.md), and opened by the
  {PYTHON}""",
    "kt": f"""- Folders are mapped by [kt-kernel](../kt.md), without a plug-in, and opened by the
  {PYTHON}""",
    "plain": f"""- Folders are loaded by the {PLUG_IN}, where they are
  for vLLM or zentorch, and opened by the {PYTHON}""",
}

def ask(program, *arguments):
    """The JSON that prepack prints; {} where a checkpoint has nothing for a target."""
    run = subprocess.run([program, *arguments, "--json"], capture_output=True, text=True)
    if run.returncode == 0:
        return json.loads(run.stdout)
    if "no layout of" in run.stderr:
        return {}
    raise SystemExit(f"layouts_doc.py: prepack {' '.join(arguments)}: {run.stderr}")


def plan(program, checkpoint, target, options):
    """The modules of a checkpoint, as planned, each with what it shares with those like it."""
    arguments = ["plan", str(CHECKPOINTS / checkpoint), "--target", target, *options.split()]
    found = ask(program, *arguments)
    return [found["choices"][module["choice"]] | module for module in found.get("modules", [])]


def table(rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def fill(name, values):
    return string.Template((HERE / name).read_text()).substitute(values)


def family(layout):
    return layout["layout"].split("/")[0]


def page_name(layout):
    return layout["layout"].replace("/", "-") + ".md"


def link(layout):
    return f"[`{layout['layout']}`]({page_name(layout)})"


def op(layout):
    is_function = family(layout) != "plain"
    return f"`{layout['consumer']}`" if is_function else layout["consumer"]


def scales(layout):
    stored = layout["scales"]
    if stored is None:
        return []
    if stored["values"] == stored["dtype"]:
        return [f"- Scales: {stored['dtype']}"]
    if stored["values"] == "F8_E8M0":
        return [f"- Scales: powers of two, as exponents + 127 in {stored['dtype']}"]
    return [f"- Scales: stored as {stored['dtype']}; rounded to: {stored['values']}"]


def part_row(part):
    shape = f"[{', '.join(part['shape'])}]"
    if part["view"]:
        shape += f", cut as [{', '.join(part['view'])}]"
    return (f"`{part['part']}`", part["dtype"], shape, part["pieces_of_n"], part["pieces_of_k"],
            part["when"])


SHOWN_WEIGHT = (17, 61)  # output and input channel of the weight that the pages find


def planned():
    """Layout id, checkpoint, target and options of all that PLANS lists, those of few options first."""
    rows = []
    for line in PLANS.read_text().splitlines():
        if line.startswith(" "):
            rows.append((line.split()[1].rstrip(";"), *conversion))
        else:
            checkpoint, _, target, *options = line.split()
            conversion = checkpoint, target, " ".join(options)
    return sorted(rows, key=lambda row: len(row[3]))


def shown(program, layouts, targets):
    """By layout id: the command that packs a bundled checkpoint so, and a module of it that has the
    weight."""
    found = {}

    def look_at(checkpoint, target, options):
        for module in plan(program, checkpoint, target, options):
            command = f"{checkpoint} -o packed --target {target} {options}".strip()
            if all(size > index for size, index in zip(module["shape"], SHOWN_WEIGHT)):
                found.setdefault(module["layout"], (command, module["module"]))

    for checkpoint, options in CONVERSIONS:
        for target in targets:
            look_at(checkpoint, target, options)
    for id, *conversion in planned():
        if id in layouts and id not in found:
            look_at(*conversion)
    missing = [id for id, row in layouts.items() if row["offered"] and id not in found]
    if missing:
        raise SystemExit(f"layouts_doc.py: no bundled checkpoint becomes {', '.join(missing)}")
    return found


def commands(layout, found):
    if not layout["offered"]:
        return "No command writes it. `prepack targets` prints what is said here in short."
    command, module = found[layout["layout"]]
    n, k = SHOWN_WEIGHT
    return f"""With a bundled checkpoint of `fixtures/checkpoints`:

    prepack convert {command}
    prepack inspect packed --layout {module}
    prepack inspect packed --find {module} {n} {k}

`prepack targets` prints what is said here in short."""


def page(layout, found):
    example = layout["example"]
    never = [] if layout["offered"] else [
        "- `prepack convert` never chooses it; it is known and tested"]
    more = HERE / page_name(layout).replace(".md", ".template")
    return fill("page.template", {
        **layout,
        **example,
        "op": op(layout),
        "readers": READERS[family(layout)],
        "remarks": "".join(line + "\n" for line in scales(layout) + never),
        "note": f"- Note: {layout['notes']}\n" if layout["notes"] else "",
        "drawing": "\n".join("    " + line for line in example["drawing"]),
        "parts": table(map(part_row, layout["parts"])),
        "more": more.read_text() if more.exists() else "",
        "commands": commands(layout, found),
    })


def overview(program, layouts, targets):
    fallbacks = []
    for target in targets:
        ids = [f"{link(row)} ({row['constraints']})" for row in target["layouts"]
               if row["for_dequantized"] and row["offered"]]
        fallbacks.append((target["target"], ", ".join(ids)))
    choices = []
    for name, checkpoint, options in CHOICES:
        for choice in plan(program, checkpoint, "vllm-cpu", options)[0]["runtime"]:
            choices.append((name, choice["cpu"], choice["kernel"], choice["remark"]))
            name = ""
    return fill("overview.template", {
        "layouts": table((link(row), row["schemes"], row["constraints"], op(row), row["isa"],
                          "yes" if row["offered"] else "no") for row in layouts.values()),
        "fallbacks": table(fallbacks),
        "choices": table(choices),
    })


def pages(program):
    """All pages, by name."""
    # What is stored in checkpoint formats, their writers define.
    targets = [row for row in ask(program, "targets")["targets"] if not row["checkpoint"]]
    listed = [row for target in targets for row in target["layouts"]]
    # What every target takes comes last.
    listed.sort(key=lambda row: family(row) == "plain")
    layouts = {row["layout"]: row for row in listed}
    found = shown(program, layouts, [target["target"] for target in reversed(targets)])
    written = {page_name(row): page(row, found) for row in layouts.values()}
    written["README.md"] = overview(program, layouts, targets)
    return written


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--prepack", default=str(ROOT / "build" / "release" / "bin" / "prepack"))
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    written = pages(options.prepack)
    old = {path.name: path.read_text() for path in FOLDER.iterdir()}
    stale = sorted(name for name in written | old if written.get(name) != old.get(name))
    if options.check:
        if stale:
            sys.exit(f"out of date: {', '.join(stale)}. Write docs/layouts again: {__file__}")
        return
    for name in stale:
        if name in written:
            (FOLDER / name).write_text(written[name])
        else:
            (FOLDER / name).unlink()


if __name__ == "__main__":
    main()
