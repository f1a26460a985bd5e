#!/usr/bin/env python3
"""Draws how long vLLM takes to load a model, and how much memory of its own, as SVG.

    bench/load_chart.py > docs/load_time.svg

The figures are those of bench/vllm_start.py in integrations/vllm/README.md: of each table row whose first cell names a
model and how it is stored, the columns "loading" and "anonymous memory then". A test draws the chart again.
"""

import html
import pathlib
import re
import sys

README = pathlib.Path(__file__).resolve().parent.parent / "integrations" / "vllm" / "README.md"
FORMS = {"the checkpoint": "checkpoint", "packed": "packed", "packed with `--fuse`": "packed, fused"}
COLOURS = {"checkpoint": "#9aa0a6", "packed": "#58a6a6", "packed, fused": "#1f7a7a"}
LEFT, BAR, GAP, HEAD, WIDTH, LONGEST = 118, 18, 4, 46, 760, 230
PANELS = (("seconds to load", 0, lambda value: f"{value:,.{2 if value < 1 else 1}f} s"),
          ("MiB of anonymous memory", 1, "{:,.0f} MiB".format))


def figures(text):
    """{model: {form: (seconds, MiB)}}"""
    found, model = {}, None
    for name, seconds, memory in re.findall(r"^\| ([^|]+) \| ([\d.]+) s \| ([\d,]+) MiB \|", text, re.MULTILINE):
        if " shapes, " in name:
            model, name = name.split(" shapes, ")
        if model is not None and name in FORMS:
            found.setdefault(model, {})[FORMS[name]] = (float(seconds), float(memory.replace(",", "")))
    return found


def bar(x, y, value, largest, form, write):
    width = max(LONGEST * value / largest, 1)
    text = html.escape(write(value))
    return (f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{COLOURS[form]}"/>'
            f'<text x="{x + width + 6:.1f}" y="{y + 13}">{text}</text>')


def draw(models):
    parts, y = [], HEAD
    half = (WIDTH - LEFT) // 2
    for i, (title, _, _) in enumerate(PANELS):
        parts.append(f'<text x="{LEFT + i * half}" y="20" class="head">{title}</text>')
    for model, forms in models.items():
        parts.append(f'<text x="4" y="{y - 8}" class="head">{html.escape(model)}</text>')
        for form, values in forms.items():
            parts.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{form}</text>')
            for i, (_, column, write) in enumerate(PANELS):
                largest = max(each[column] for each in forms.values())
                parts.append(bar(LEFT + i * half, y, values[column], largest, form, write))
            y += BAR + GAP
        y += 34
    style = ("text{font:12px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600}"
             "@media(prefers-color-scheme:dark){text{fill:#e6edf3}}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - 30}" role="img">'
            f"<title>Loading a model into vLLM</title><style>{style}</style>\n" + "\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    sys.stdout.write(draw(figures(README.read_text(encoding="utf-8"))))
