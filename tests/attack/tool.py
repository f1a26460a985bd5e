"""Runs prepack as a stranger does, and says what it must not have done, whatever it was given."""

import hashlib
import json
import os
import subprocess
from dataclasses import dataclass, field

TOOL = os.environ.get("PREPACK_TOOL", "prepack")
SECONDS = 120  # the largest mutant is done in one
CODES = {
    "check": {0, 1, 3, 4, 5}, "plan": {0, 2, 3, 4, 5}, "inspect": {0, 2, 3, 4, 5}, "diff": {0, 1, 3, 4, 5},
    "convert": {0, 2, 3, 4, 5}, "merge": {0, 2, 3, 4, 5}, "verify": {0, 1, 2, 3, 4, 5, 6},
}  # fmt: skip
WITH_REPORT = {0, 1, 6}  # where --json prints a document
BROKEN = ("Sanitizer", "runtime error:", "terminate called", "what():", "Assertion", "std::", "json.exception", "0x7f")


@dataclass
class Ran:
    words: list
    code: int
    out: str
    err: str
    wrong: list = field(default_factory=list)  # what breaks the rules that hold for every input


def snapshot(folder):
    """Names, kinds, times and bytes of all that lies in a folder."""
    state = {}
    for path in sorted(folder.rglob("*")):
        stat = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else None
        state[str(path.relative_to(folder))] = (stat.st_mode, stat.st_size, stat.st_mtime_ns, digest)
    return state


def run(*words, tool=None):
    words = [str(word) for word in words]
    try:
        result = subprocess.run([tool or TOOL, *words], capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Ran(words, -999, "", "", [f"{words[0]} hangs"])
    out, err = (text.decode("utf-8", "backslashreplace") for text in (result.stdout, result.stderr))
    ran = Ran(words, result.returncode, out, err)
    ran.wrong = [f"{words[0]}: {one}" for one in _broken_rules(ran, result)]
    return ran


def _broken_rules(ran, result):
    if ran.code < 0:
        yield f"killed by signal {-ran.code}"
        return
    if ran.code not in CODES[ran.words[0]]:
        yield f"exit code {ran.code}"
    for text, name in ((result.stdout, "stdout"), (result.stderr, "stderr")):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            yield f"{name} is no UTF-8"
            continue
        if any(ord(c) < 32 and c not in "\n\t" or c in "\u202e\u007f" for c in text):
            yield f"{name} has control characters"
    yield from _error_rules(ran)
    if "--json" in ran.words and ran.code in WITH_REPORT and not (ran.code and ran.err.startswith("error: ")):
        try:
            json.loads(ran.out)
        except ValueError:
            yield "stdout is no JSON document"


def _error_rules(ran):
    if any(word in ran.err for word in BROKEN):
        yield "an inner failure on stderr"
    lines = ran.err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    others = [line for line in lines if not line.startswith(("error: ", "warning", "note"))]
    if others:
        yield f"a line that is neither error, warning nor note: {others[0][:200]}"
    # Judges print what they found on stdout, also where a checkpoint is malformed or not supported.
    silent = ran.code in WITH_REPORT or (ran.words[0] in ("check", "plan") and ran.out)
    if len(errors) > 1 or (not errors and not silent):
        yield f"{len(errors)} lines of errors with exit code {ran.code}"
    if errors and ran.code == 0:
        yield "an error with exit code 0"
    if any(len(line) > 9000 for line in lines):
        yield "a line of more than 9000 bytes"
