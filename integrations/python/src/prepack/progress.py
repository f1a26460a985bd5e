"""How far a long run is: for a function of the caller, or as a bar."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any, Callable, Iterator, Optional, Union

from prepack.results import Progress

# A function that is called some ten times a second and at the end of every stage; True for a bar: in a
# notebook below the cell, else by tqdm where it is installed, else on one line.
ProgressOption = Union[None, bool, Callable[[Progress], Any]]


class _Bar:
    """One bar of tqdm per stage."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._bar: Any = None
        self._stage: Optional[str] = None

    def __call__(self, progress: Progress) -> None:
        if self._bar is None or progress.stage != self._stage:
            self.close()
            self._stage = progress.stage
            self._bar = self._tqdm(
                total=progress.total or None, desc=progress.stage, unit="B", unit_scale=True, unit_divisor=1000
            )
        if progress.total and self._bar.total != progress.total:
            self._bar.total = progress.total
        self._bar.update(progress.done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Line:
    """A line on stderr that changes, for those who have no tqdm."""

    def __init__(self) -> None:
        self._is_there = False

    def __call__(self, progress: Progress) -> None:
        share = f"{100 * progress.done // progress.total:3} %" if progress.total else ""
        sys.stderr.write(f"\r{progress.stage:<12} {share:<5}")
        sys.stderr.flush()
        self._is_there = True

    def close(self) -> None:
        if self._is_there:
            sys.stderr.write("\n")


class _Cell:
    """A bar below the cell of a notebook, which is one output that changes: needs no widgets."""

    def __init__(self, display: Any, html: Any) -> None:
        self._display, self._html = display, html
        self._shown: Any = None
        self._text = ""

    def __call__(self, progress: Progress) -> None:
        share = f"{100 * progress.done // progress.total} %" if progress.total else ""
        value = f" value='{progress.done}' max='{progress.total}'" if progress.total else ""
        text = f"{escape(progress.stage)} <progress{value}></progress> {share}"
        if text == self._text:
            return
        self._text = text
        if self._shown is None:
            self._shown = self._display(self._html(text), display_id=True)
        else:
            self._shown.update(self._html(text))

    def close(self) -> None:
        """The last that was shown stays."""


def _notebook() -> Optional[_Cell]:
    """Of the notebook that this runs in, if it does. Who runs in one has imported IPython already."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    display: Any = import_module("IPython.display")
    return _Cell(display.display, display.HTML)


def _bar() -> Any:
    notebook = _notebook()
    if notebook is not None:
        return notebook
    try:
        return _Bar(import_module("tqdm").tqdm)  # only who wants a bar needs it
    except ImportError:
        return _Line()


@contextmanager
def observer_for(progress: ProgressOption) -> Iterator[Optional[Callable[[Progress], Any]]]:
    if progress is None or progress is False:
        yield None
    elif callable(progress):
        yield progress
    else:
        bar = _bar()
        try:
            yield bar
        finally:
            bar.close()
