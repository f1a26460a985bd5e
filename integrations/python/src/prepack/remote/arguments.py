"""Arguments of the tool, of which some are for us."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, List, Optional

from prepack.errors import UsageError
from prepack.tool import tool_path


def take(arguments: List[str], *names: str) -> Optional[str]:
    """The value of an option, which is removed: `--name VALUE` or `--name=VALUE`."""
    value = None
    at = 0
    while at < len(arguments):
        name, separator, rest = arguments[at].partition("=")
        if name not in names:
            at += 1
            continue
        if not separator and at + 1 == len(arguments):
            raise UsageError("it needs a value", where=name)
        value = rest if separator else arguments[at + 1]
        del arguments[at : at + (1 if separator else 2)]
    return value


def take_all(arguments: List[str], name: str) -> List[str]:
    """The values of an option that takes several, up to the next option, or of `--name=VALUE`; all are removed."""
    values: List[str] = []
    rest: List[str] = []
    taking = False
    for argument in arguments:
        option, separator, value = argument.partition("=")
        if option == name and separator:
            values.append(value)
        elif argument.startswith("-"):
            taking = argument == name
            if not taking:
                rest.append(argument)
        else:
            (values if taking else rest).append(argument)
    arguments[:] = rest
    return values


def take_flag(arguments: List[str], name: str) -> bool:
    is_there = name in arguments
    arguments[:] = [argument for argument in arguments if argument != name]
    return is_there


def take_address(arguments: List[str], what: str) -> str:
    """The first address, or the first word if there is none."""
    for argument in arguments:
        if "://" in argument and not argument.startswith("-"):
            arguments.remove(argument)
            return argument.rstrip("/")
    raise UsageError("no argument is an address", where=f"prepack-remote {what}", expected="s3://BUCKET/FOLDER",
                     hint="prepack itself reads folders")


def scratch_folder(named: Optional[str], cache: Path, job: List[Any]) -> Path:
    """The same for the same job, so that it goes on where it was killed."""
    digest = hashlib.sha256(json.dumps(job).encode()).hexdigest()[:16]
    return (Path(named) if named else cache / "jobs") / f"prepack-{digest}"


def run_tool(arguments: List[str], **more: Any) -> int:
    """Its exit code. Signals that ask us to end are for it to obey: it removes what it has begun."""
    sys.stdout.flush()
    child = subprocess.Popen([str(tool_path()), *arguments], **more)
    handlers = {number: signal.signal(number, lambda number, _: child.send_signal(number))
                for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = child.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def name_of(url: str) -> str:
    name = url.rpartition("/")[2]
    if not name or name.startswith((".", "-")) or os.sep in name:
        raise UsageError("the address names no folder", where=url)
    return name
