#!/usr/bin/env python3
"""Turns reports of prepack into annotations of GitHub Actions and a summary of the job.

    annotate.py check CHECK.json       of `prepack check --json`
    annotate.py verify VERIFY.json     of `prepack verify --json`
    annotate.py error TITLE TEXT       one annotation for the text of a file (what a command said)

Annotations go to stdout, at the file that a finding is about. The summary is appended to the file that
GITHUB_STEP_SUMMARY names. Needs nothing but Python 3.9.
"""

import json
import os
import pathlib
import struct
import sys

MOST = 10  # annotations of a kind that GitHub shows for a step


def escape(text, more=""):
    """As the toolkit of GitHub escapes data; `more` are the characters that properties escape as well."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def shown_path(path):
    """As seen from the repository; empty when the file is outside it, where GitHub shows nothing."""
    workspace = pathlib.Path(os.environ.get("GITHUB_WORKSPACE", ".")).resolve()
    absolute = pathlib.Path(os.path.abspath(path))
    return absolute.relative_to(workspace).as_posix() if absolute.is_relative_to(workspace) else ""


def annotate(kind, title, message, path=None):
    shown = shown_path(path) if path else ""
    properties = {"file": shown, "title": title}
    text = ",".join(f"{name}={escape(value, ':,')}" for name, value in properties.items() if value)
    print(f"::{kind} {text}::{escape(message)}")


def summarize(text):
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if place:
        with open(place, "a", encoding="utf-8") as file:
            file.write(text)


def code(text):
    """Text of a file that cannot become markup in a table."""
    return "`" + text.replace("`", "'").replace("|", "¦").replace("\n", " ") + "`"


def tensor_files(folder):
    """tensor → file of a checkpoint, from the headers of its shards. What cannot be read has none."""
    files = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with open(path, "rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(min(length, 1 << 30)))
            files.update({name: path.name for name in header if name != "__metadata__"})
        except (OSError, ValueError, struct.error):
            continue
    return files


def file_of_place(place, folder, tensors):
    """The file that a finding speaks of: "config.json: key", "model.safetensors: tensor X", a module, a tensor."""
    first = place.split(":")[0].strip()
    for name in (first, os.path.basename(first)):
        if name and (folder / name).is_file():
            return folder / name
    for tensor, name in tensors.items():
        if tensor == place or tensor.startswith(place + "."):
            return folder / name
    return folder / "config.json"


def load(path):
    """A report, or None where the command ended before it wrote one."""
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def check(path):
    report = load(path)
    if report is None:
        return
    folder = pathlib.Path(report["source"])
    tensors = tensor_files(folder)
    kinds = {"error": "error", "warning": "warning", "info": "notice"}
    count = dict.fromkeys((*kinds.values(), "accepted"), 0)
    rows = []
    for finding in report["findings"]:
        accepted = finding.get("accepted", False)
        kind = "notice" if accepted else kinds[finding["severity"]]
        count["accepted" if accepted else kind] += 1
        message = f"{finding['where']}: {finding['message']}"
        if finding["more"]:
            message += f" (and {finding['more']} more like it)"
        if finding["hint"]:
            message += f"\n{finding['hint']}"
        if count["accepted" if accepted else kind] <= MOST and finding["severity"] != "info":
            title = f"prepack check: {finding['id']}{' (accepted)' if accepted else ''}"
            annotate(kind, title, message, file_of_place(finding["where"], folder, tensors))
        label = "accepted" if accepted else finding["severity"]
        rows.append(f"| {label} | `{finding['id']}` | {code(finding['where'])} | {code(finding['message'])} |")
    mark = "❌" if report["exit_code"] else "✅"
    text = f"### {mark} prepack check: {report['verdict']}\n\n{code(report['source'])}, {report['format'] or 'format not read'}\n\n"
    if rows:
        text += "| | finding | where | what |\n|---|---|---|---|\n" + "\n".join(rows[:100]) + "\n"
        if len(rows) > 100:
            text += f"\nand {len(rows) - 100} more\n"
    summarize(text + "\n")


def verify(path):
    report = load(path)
    if report is None:
        return
    folder = pathlib.Path(report["folder"])
    manifest = load(folder / "prepack.json") or {}
    files = {
        name: next(iter(module["parts"].values()))["file"]
        for name, module in manifest.get("modules", {}).items()
        if module.get("parts")
    }
    files.update({tensor["tensor"]: tensor["file"] for tensor in manifest.get("tensors", [])})
    count = 0
    for level, result in report["levels"].items():
        for problem in result["problems"]:
            count += 1
            if count > MOST:
                continue
            name = files.get(problem["module"]) or problem["where"].split(":")[0]
            place = folder / name if (folder / name).is_file() else folder / "prepack.json"
            message = f"{problem['where']}: {problem['message']}"
            annotate("error", f"prepack verify: {level} failed", message, place)
    if report["verdict"] == "not run":
        annotate("error", "prepack verify: not run", "not everything could be verified", folder / "prepack.json")


def error(title, path):
    """The lines that a command wrote to stderr."""
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace").strip()
    lines = [line.removeprefix("error: ") for line in text.splitlines() if line.startswith("error: ")]
    if lines:
        annotate("error", title, "\n".join(lines))


def main(arguments):
    commands = {"check": (check, 1), "verify": (verify, 1), "error": (error, 2)}
    run, count = commands.get(arguments[0] if arguments else "", (None, 0))
    if run is None or len(arguments) != count + 1:
        print(__doc__, file=sys.stderr)
        return 2
    run(*arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
