"""The one error of this package."""

from __future__ import annotations

# What a hostile file says is repeated in messages, but not at any length.
_LONGEST = 120


def printable(value):
    """`value` for a message: in one line of ASCII, and not too long."""
    text = ascii(value)[1:-1] if isinstance(value, str) else ascii(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


class FolderError(ValueError):
    """A packed folder is not what its manifest says, or not one that this package knows.

    `file`, `module`, `field`, `found`, `expected` and `hint` hold what the message says; all but
    `file` may be None.
    """

    def __init__(self, file, what, *, module=None, field=None, found=None, expected=None, hint=None):
        self.file = str(file)
        self.module = module
        self.field = field
        self.found = found
        self.expected = expected
        self.hint = hint
        message = self.file
        if module is not None:
            message += f": module {printable(module)}"
        if field is not None:
            message += f": field {printable(field)}"
        message += f": {what}"
        facts = [("found", found), ("expected", expected)]
        known = [f"{name} {printable(value)}" for name, value in facts if value is not None]
        if known:
            message += f" ({', '.join(known)})"
        if hint is not None:
            message += f". {hint}"
        super().__init__(message)
