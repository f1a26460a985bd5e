"""Runs the tool as a child process, and makes Python objects of what it says.

A child, and not a library in this process: whatever happens to it (a crash, the system's end for
want of memory) cannot take the notebook along, the GIL is free while it works, and it can be stopped
at any time, because a signal makes it remove what it has begun.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import threading
from typing import IO, Any, Callable, List, Optional, Sequence, Tuple, Type, TypeVar

from prepack.errors import CancelledError, CrashedError, Error, error_of
from prepack.progress import ProgressOption, observer_for
from prepack.record import Document, attach, record_from
from prepack.results import Progress
from prepack.tool import tool_path

DocumentType = TypeVar("DocumentType", bound=Document)

# How often to look whether the caller has asked to stop, in seconds.
_LOOK_EVERY = 0.05
# After so many seconds a child that was asked to end is killed: it was only to remove a folder.
_PATIENCE = 60.0


class _Messages:
    """What the child prints on stderr, line by line."""

    def __init__(self, on_progress: Optional[Callable[[Progress], None]]) -> None:
        self.notes: List[str] = []
        self.errors: List[Any] = []  # documents
        self.other: List[str] = []  # lines that are none, such as those of a dynamic loader
        self._on_progress = on_progress
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line.decode("utf-8", "replace"))

    def end(self) -> None:
        if self._rest:
            self.feed(b"\n")

    def _line(self, line: str) -> None:
        try:
            document = json.loads(line)
            kind = document["kind"]
        except (ValueError, TypeError, KeyError):
            self.other.append(line)
            return
        if kind == "prepack-progress":
            if self._on_progress is not None:
                self._on_progress(record_from(Progress, document))
        elif kind == "prepack-error":
            self.errors.append(document)
        else:
            self.notes.append(str(document.get("text", line)))


class _LateInterrupt:
    """Keeps Ctrl-C back until `release`: in the middle of starting the child, it would leave one
    running that nobody knows of. Only the main thread hears of Ctrl-C."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._came: List[Any] = []

    def __enter__(self) -> "_LateInterrupt":
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            signal.signal(signal.SIGINT, lambda *arguments: self._came.append(arguments))
            self._handler = handler
        return self

    def release(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
            for arguments in self._came[:1]:
                handler(*arguments)

    def __exit__(self, *_: object) -> None:
        self.release()


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """Asks the child to end, and waits until it has cleaned up. What interrupts that kills it."""
    if child.poll() is not None:
        return
    try:
        child.send_signal(signal.SIGTERM)
        child.wait(_PATIENCE)
    except BaseException:
        child.kill()
        child.wait()
        raise


def _check(cancel: Optional[threading.Event]) -> None:
    if cancel is not None and cancel.is_set():
        raise CancelledError("stopped on request", where="prepack")


def _read_all(
    child: "subprocess.Popen[bytes]", messages: _Messages, cancel: Optional[threading.Event]
) -> None:
    assert child.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stderr, selectors.EVENT_READ)
        while True:
            _check(cancel)
            if not selector.select(_LOOK_EVERY if cancel is not None else None):
                continue
            data = os.read(child.stderr.fileno(), 1 << 16)
            if not data:
                return
            messages.feed(data)


def _error_from(code: int, messages: _Messages) -> Error:
    if code < 0:  # a signal that the tool does not catch
        error = CrashedError(
            f"the tool was ended by signal {-code}", where="prepack",
            hint="Was it out of memory? Try fewer jobs, or a memory_limit" if -code == signal.SIGKILL else None,
        )
        error.signal = -code
        return error
    if not messages.errors:
        said = " ".join(messages.other).strip()
        return error_of(code)(said or f"the tool ended with {code} and said nothing", where="prepack")
    first = messages.errors[0]
    return error_of(int(first["exit_code"]))(
        first["what"], where=first["where"], found=first.get("found"), expected=first.get("expected"),
        hint=first.get("hint"), id=first.get("id"), text=first["text"],
    )


def run_tool(
    arguments: Sequence[str],
    *,
    shows_progress: bool = False,
    progress: ProgressOption = None,
    cancel: Optional[threading.Event] = None,
) -> Tuple[int, Any, Tuple[str, ...]]:
    """(exit code, document, notes) of a command. Raises the error when there is no document.

    Whatever is raised in the meantime, such as KeyboardInterrupt, or by `progress`, stops the tool,
    which removes what it has begun.
    """
    command = [str(tool_path()), arguments[0], "--json", "--messages=json"]
    with observer_for(progress) as on_progress:
        if shows_progress:
            command.append(f"--progress={'none' if on_progress is None else 'json'}")
        messages = _Messages(on_progress)
        with tempfile.TemporaryFile() as output:
            code = _run(command + list(arguments[1:]), output, messages, cancel)
            output.seek(0)
            text = output.read()
    if code not in (0, 1, 3, 5, 6) or not text:
        raise _error_from(code, messages)
    return code, json.loads(text), tuple(messages.notes)


def _run(
    command: Sequence[str], output: "IO[bytes]", messages: _Messages, cancel: Optional[threading.Event]
) -> int:
    _check(cancel)  # a child might end before a signal reaches it
    # In a session of its own, so that Ctrl-C in a terminal reaches this process alone, which then
    # stops the child once: a second signal would kill it before it has cleaned up. Should this process
    # die without a word, the variable makes the child stop by itself.
    with _LateInterrupt() as interrupt:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, bufsize=0,
            start_new_session=True, env={**os.environ, "PREPACK_STOP_WITH_PARENT": str(os.getpid())},
        )
        assert child.stderr is not None
        with child.stderr:
            try:
                interrupt.release()
                _read_all(child, messages, cancel)
                messages.end()
                return child.wait()
            except BaseException:
                _stop(child)
                raise


def run(
    result: Type[DocumentType],
    arguments: Sequence[str],
    *,
    shows_progress: bool = False,
    progress: ProgressOption = None,
    cancel: Optional[threading.Event] = None,
) -> DocumentType:
    """The result of a command that prints such a document."""
    code, data, notes = run_tool(arguments, shows_progress=shows_progress, progress=progress, cancel=cancel)
    document = record_from(result, data)
    attach(document, code, notes, None)
    return document
