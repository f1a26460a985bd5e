"""JSON in which no key of an object is there twice: readers would take one or the other."""

import json
from typing import Any


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return values


def parse(text: str | bytes) -> Any:
    """Raises ValueError, or RecursionError where it is nested too deep."""
    return json.loads(text, object_pairs_hook=_unique)
