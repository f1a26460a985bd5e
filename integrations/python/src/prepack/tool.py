"""Where the program `prepack` is."""

from __future__ import annotations

import os
import shutil
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Iterator, Optional

from prepack.errors import SystemFailedError

_NAME = "prepack"
_DISTRIBUTION = "prepack-llm"
# A program to use in place of the one that was installed with this package.
VARIABLE = "PREPACK_TOOL"


def _candidates() -> Iterator[Optional[Path]]:
    # Of `pip install --target`, which moves the program after pip has noted where it is.
    yield Path(__file__).resolve().parent.parent / "bin" / _NAME
    # Where pip says that it has put it: right for --user and --prefix, too.
    try:
        for file in metadata.files(_DISTRIBUTION) or ():
            if file.parts[-2:] == ("bin", _NAME):
                yield Path(str(file.locate()))
    except metadata.PackageNotFoundError:
        pass
    yield Path(sysconfig.get_path("scripts")) / _NAME
    found = shutil.which(_NAME)
    yield Path(found) if found else None


def tool_path() -> Path:
    """The program that the functions of this package run: the one that was installed with it, or
    what the environment variable PREPACK_TOOL names."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    for path in _candidates():
        if path is not None and os.access(path, os.X_OK) and path.is_file():
            return path.resolve()
    raise SystemFailedError(
        "the program prepack is not there",
        where="prepack",
        hint=f"Install the wheel of prepack, or name the program in {VARIABLE}",
    )
