"""What all results have in common: how they are made from JSON, and how notebooks show them."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple, Type, TypeVar, Union, get_args, get_origin, get_type_hints

from prepack.errors import Error, error_of

RecordType = TypeVar("RecordType", bound="Record")

# Notebooks show so many rows of a list; the list itself has them all.
MOST_ROWS = 100


class Record:
    """An object of a document of `--json`."""

    def _repr_html_(self) -> str:
        return html_of(self)


class Page:
    """A report as a self-contained page, which notebooks show."""

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: Union[str, Path]) -> None:
        Path(path).write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<prepack.Page: {len(self.html)} characters>"

    def _repr_html_(self) -> str:
        # In a frame of its own, with scripts but without the notebook's origin.
        return (
            '<iframe sandbox="allow-scripts" style="width: 100%; height: 600px; border: 1px solid #ccc"'
            f' srcdoc="{escape(self.html, quote=True)}"></iframe>'
        )


class Document(Record):
    """The result of a command. `returncode` is its exit code: 0 if all is good, and else what
    docs/errors.md says. `messages` are the notes that it printed, `page` the report if one was
    asked for."""

    # Not fields: these are not in the document. A frozen dataclass lets nobody else set them.
    @property
    def returncode(self) -> int:
        return int(self.__dict__.get("_returncode", 0))

    @property
    def ok(self) -> bool:
        return self.returncode == 0

    @property
    def messages(self) -> Tuple[str, ...]:
        messages: Tuple[str, ...] = self.__dict__.get("_messages", ())
        return messages

    @property
    def page(self) -> Optional[Page]:
        page: Optional[Page] = self.__dict__.get("_page")
        return page

    def raise_if_bad(self: RecordType) -> RecordType:
        """The result itself, if its verdict is good; else raises the error of its exit code."""
        code = int(self.__dict__.get("_returncode", 0))
        if code != 0:
            verdict = getattr(self, "verdict", "not good")
            place = getattr(self, "folder", None) or getattr(self, "source", None) or getattr(self, "a", "")
            text = f"the verdict of {type(self).__name__.lower()} is: {verdict}"
            raise error_of(code)("; ".join([text, *_causes(self)]), where=str(place))
        return self


def _causes(document: Any) -> Iterator[str]:
    """Of each level that did not pass: why it did not run, with what to do, or the first that is wrong."""
    levels = getattr(document, "levels", None)
    for name in getattr(levels, "__dataclass_fields__", ()):
        level = getattr(levels, name)
        if not level.asked or level.state == "passed":
            continue
        first = [f"{problem.where}: {problem.message}" for problem in level.problems[:1]]
        yield f"{name} {level.state}: {level.reason or ''.join(first)}"


def attach(document: Document, returncode: int, messages: Tuple[str, ...], page: Optional[Page]) -> None:
    for name, value in (("_returncode", returncode), ("_messages", messages), ("_page", page)):
        object.__setattr__(document, name, value)


# Made from JSON.


@lru_cache(maxsize=None)
def _types_of(record: Any) -> Dict[str, Any]:
    return get_type_hints(record, vars(sys.modules[record.__module__]))


def record_from(cls: Type[RecordType], data: Any) -> RecordType:
    """Fields that a newer tool adds are left out; a field that is missing is an Error."""
    kind: Any = cls
    types = _types_of(kind)
    try:
        values = {name: _value_of(types[name], data[name]) for name in types if name in data}
        return cls(**values)
    except (TypeError, KeyError) as error:
        raise Error(
            f"the tool's answer is no {cls.__name__}: {error}",
            hint="Are the package and the tool of one version?",
        ) from error


def _value_of(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin is None:
        if isinstance(kind, type) and issubclass(kind, Record):
            return record_from(kind, value)
        return float(value) if kind is float and isinstance(value, int) else value
    arguments = get_args(kind)
    if origin is Union:
        if value is None:
            return None
        return _value_of(_member_for(arguments, value), value)
    if origin is tuple:
        return tuple(_value_of(arguments[0], item) for item in value)
    if origin is dict:
        return {key: _value_of(arguments[1], item) for key, item in value.items()}
    return value  # a Literal


def _member_for(kinds: Tuple[Any, ...], value: Any) -> Any:
    """The member of a Union that such a value is of."""
    for kind in kinds:
        if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Record):
            return kind
        if isinstance(value, list) and get_origin(kind) is tuple:
            return kind
        if isinstance(kind, type) and isinstance(value, (int, float)) and kind in (int, float):
            return kind
    return Any


# Shown as HTML.


def html_of(record: Any) -> str:
    """A table of what is simple in the record, and one for each list of records in it."""
    plain, tables = [], []
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, tuple) and value and is_dataclass(value[0]):
            tables.append(_table_of(field.name, value))
        elif field.name not in ("kind", "version"):
            plain.append(f"<tr><th style='text-align: left'>{escape(field.name)}</th><td>{_cell(value)}</td></tr>")
    head = f"<b>{escape(type(record).__name__)}</b>"
    return f"<div>{head}<table>{''.join(plain)}</table>{''.join(tables)}</div>"


def _table_of(name: str, rows: Tuple[Any, ...]) -> str:
    names = [field.name for field in fields(rows[0])]
    head = "".join(f"<th>{escape(column)}</th>" for column in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(getattr(row, column))}</td>" for column in names) + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    more = len(rows) - MOST_ROWS
    foot = f"<p>and {more} more: <code>.{escape(name)}</code> has them all</p>" if more > 0 else ""
    return (
        f"<details open><summary>{escape(name)}: {len(rows)}</summary>"
        f"<table><tr>{head}</tr>{body}</table>{foot}</details>"
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Record):
        named = getattr(value, "name", None) or getattr(value, "state", None) or getattr(value, "description", None)
        return escape(str(named)) if named else _inner_table(value)
    if isinstance(value, dict):
        rows = list(value.items())[:MOST_ROWS]
        return "<br>".join(f"{escape(str(key))}: {_cell(item)}" for key, item in rows)
    if isinstance(value, tuple):
        if value and is_dataclass(value[0]):
            return escape(f"{len(value)} × {type(value[0]).__name__}")
        return escape(" × ".join(str(item) for item in value) if _is_shape(value) else ", ".join(map(str, value[:10])))
    if isinstance(value, float):
        return f"{value:.6g}"
    return escape(str(value))


def _is_shape(value: Tuple[Any, ...]) -> bool:
    return bool(value) and all(type(item) is int for item in value)


def _inner_table(record: Any) -> str:
    rows = "".join(
        f"<tr><td>{escape(field.name)}</td><td>{_cell(getattr(record, field.name))}</td></tr>"
        for field in fields(record)
    )
    return f"<table>{rows}</table>"
