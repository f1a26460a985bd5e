"""The errors of this package, one class for each exit code of the tool (docs/errors.md)."""

from __future__ import annotations

from typing import Any, Dict, Optional, Type

# What a hostile file says is repeated in messages, but not at any length.
_LONGEST = 120


def printable(value: Any) -> str:
    """`value` for a message: in one line of ASCII, and not too long."""
    text = ascii(value)[1:-1] if isinstance(value, str) else ascii(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


class Error(Exception):
    """What prepack could not do. `where` is the place, from the outside in; `what` is wrong there;
    `found`, `expected`, `hint` and `id` (of a finding) may be None. `exit_code` is the tool's."""

    exit_code: int = 4

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        found: Any = None,
        expected: Any = None,
        hint: Optional[str] = None,
        id: Optional[str] = None,
        text: Optional[str] = None,
    ) -> None:
        self.what = what
        self.where = where
        self.found = found
        self.expected = expected
        self.hint = hint
        self.id = id
        if text is None:
            text = f"{where}: {what}" if where else what
            facts = [("found", found), ("expected", expected)]
            known = [f"{name} {printable(value)}" for name, value in facts if value is not None]
            if known:
                text += f" ({', '.join(known)})"
            if hint is not None:
                text += f". {hint}"
        super().__init__(text)


class CheckFailedError(Error):
    """A check ran, and found something bad."""

    exit_code = 1


class UsageError(Error, ValueError):
    """What was asked for makes no sense: an unknown target, an output that already exists."""

    exit_code = 2


class MalformedError(Error, ValueError):
    """The input is broken, or contradicts itself."""

    exit_code = 3


class SystemFailedError(Error, OSError):
    """A path, I/O, memory, a full disk. No `errno`: `what` has its text."""

    exit_code = 4


class UnsupportedError(Error):
    """The input is sound, but prepack does not support this format, scheme or layout."""

    exit_code = 5


class UnavailableError(Error):
    """Something that was asked for cannot run here: a source, a library or an instruction is missing."""

    exit_code = 6


class CancelledError(Error):
    """The run was stopped on request, and has left nothing behind."""

    exit_code = 130


class CrashedError(SystemFailedError):
    """The tool was killed, such as by the system for want of memory. `signal` is the number."""

    signal: int = 0


class FolderError(MalformedError):
    """A packed folder is not what its manifest says, or not one that this package knows.

    `file`, `module`, `field`, `found`, `expected` and `hint` hold what the message says; all but
    `file` may be None.
    """

    def __init__(
        self,
        file: Any,
        what: str,
        *,
        module: Optional[str] = None,
        field: Optional[str] = None,
        found: Any = None,
        expected: Any = None,
        hint: Optional[str] = None,
    ) -> None:
        self.file = str(file)
        self.module = module
        self.field = field
        where = self.file
        if module is not None:
            where += f": module {printable(module)}"
        if field is not None:
            where += f": field {printable(field)}"
        super().__init__(what, where=where, found=found, expected=expected, hint=hint)


_BY_CODE: Dict[int, Type[Error]] = {
    error.exit_code: error
    for error in (CheckFailedError, UsageError, MalformedError, SystemFailedError, UnsupportedError,
                  UnavailableError, CancelledError)
}


def error_of(exit_code: int) -> Type[Error]:
    """The class of the errors with this exit code."""
    return _BY_CODE.get(exit_code, SystemFailedError)
