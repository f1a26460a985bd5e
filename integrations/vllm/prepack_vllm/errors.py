"""Errors, each with the exit code that all of prepack uses for its kind."""

import sys
from collections.abc import Callable


def first_line(error: Exception) -> str:
    """What libraries say first; the rest is mostly advice."""
    return (str(error).splitlines() or [""])[0]


def run_command(command: Callable[[], int]) -> int:
    """Its exit code, or that of the error, which is printed."""
    try:
        return command()
    except PrepackError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 4


class PrepackError(ValueError):
    """`WHERE: WHAT (found …, expected …). HINT`, like the messages of the command line."""

    exit_code = 4

    def __init__(
        self,
        where: str,
        what: str,
        *,
        found: object = None,
        expected: object = None,
        hint: str = "",
    ):
        details = [f"found {found}"] if found is not None else []
        details += [f"expected {expected}"] if expected is not None else []
        message = f"{where}: {what}"
        if details:
            message += f" ({', '.join(details)})"
        if hint:
            message += f". {hint}"
        super().__init__(message)


class UsageError(PrepackError):
    """An option, or a path that was named."""

    exit_code = 2


class Malformed(PrepackError):
    """The folder contradicts itself, or is not whole."""

    exit_code = 3


class Unsupported(PrepackError):
    """The folder is sound, but this model, parallelism or runtime cannot use it."""

    exit_code = 5


class CannotRunHere(PrepackError):
    """The CPU, or a library, lacks what the layout's kernel needs."""

    exit_code = 6
