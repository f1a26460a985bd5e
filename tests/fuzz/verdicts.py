"""What the tests that compare our verdicts with another's share."""

import argparse
import dataclasses
import pathlib
import random
import re
import subprocess
import sys
import time

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "security.md"
BATCH = 2_000


@dataclasses.dataclass
class Table:
    """Differences that are agreed: a pattern of the message of the one that refuses → why, as docs/security.md has it."""

    rows: dict
    used: set = dataclasses.field(default_factory=set)

    def allows(self, message):
        for pattern in self.rows:
            if re.search(pattern, message):
                self.used.add(pattern)
                return True
        return False

    def unused(self):
        return [pattern for pattern in self.rows if pattern not in self.used]


def ask(program, given):
    """The lines that the program answers to the bytes."""
    answer = subprocess.run([program], input=given, capture_output=True, check=False)
    if answer.returncode:
        sys.exit(f"{program} ended with {answer.returncode}: {answer.stderr.decode(errors='replace')}")
    return answer.stdout.splitlines()


def check_document(tables):
    """The tables in the document are those here."""
    text = DOCUMENT.read_text()
    missing = [why for table in tables for why in table.rows.values() if f"| {why} |" not in text]
    if missing:
        sys.exit(f"{DOCUMENT} does not list: {missing}")


def run(description, count, tables, make, ours, compare):
    """Makes inputs with make(random), asks ours(inputs), and compare(input, verdict) says what is wrong, or None.

    A verdict is one that takes the input where it has no key of a refusal: "refused", "malformed", "unsupported".
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=count, help=f"how many inputs (default: {count})")
    parser.add_argument("--seconds", type=float, default=0, help="go on for so long")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    check_document(tables)
    rng = random.Random(options.seed)
    end, done, taken, wrong = time.monotonic() + options.seconds, 0, 0, 0
    while done < options.count or time.monotonic() < end:
        inputs = [make(rng) for _ in range(BATCH)]
        for given, verdict in zip(inputs, ours(inputs), strict=True):
            taken += not {"refused", "malformed", "unsupported"} & verdict.keys()
            if problem := compare(given, verdict):
                wrong += 1
                if wrong <= 20:
                    print(f"{problem}\n    {given!r:.400}", file=sys.stderr)
        done += BATCH
    print(f"{done} inputs, seed {options.seed}: {taken} taken, {wrong} unexplained differences")
    if not 0.2 * done < taken < 0.8 * done:
        sys.exit("hardly any inputs are sound, or hardly any are not: this proves little")
    if unused := [pattern for table in tables for pattern in table.unused()]:
        sys.exit(f"no input needs these rows of the table: {unused}")
    sys.exit(1 if wrong else 0)
