"""Reads the files of a folder ahead, in their order, while the model is made.

Mapped weights are read where they are first used, a few pages at a time, by the first prompt. From a
disk that is slower than reading whole files in order.
"""

import os
import threading
from collections.abc import Iterable
from pathlib import Path

from prepack_vllm.errors import Malformed
from prepack_vllm.manifest import Manifest

VARIABLE = "PREPACK_VLLM_READ_AHEAD"
_STEP = 16 << 20  # so much is asked for at once


def is_wanted() -> bool:
    mode = os.environ.get(VARIABLE, "")
    if mode not in ("", "0", "1"):
        raise Malformed(VARIABLE, "unknown value", found=mode, expected="0 or 1")
    return mode == "1"


def begin(manifest: Manifest) -> threading.Thread:
    """Returns the thread that goes on."""
    names = sorted({entry.file for entry in manifest.all_tensors()})
    files = [manifest.folder / name for name in names]
    thread = threading.Thread(target=_read, args=(files,), daemon=True)
    thread.start()
    return thread


def _read(files: Iterable[Path]) -> None:
    for path in files:
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                for begin in range(0, size, _STEP):
                    os.posix_fadvise(file.fileno(), begin, _STEP, os.POSIX_FADV_WILLNEED)
        except OSError:  # whoever needs the file says what is wrong with it
            return
