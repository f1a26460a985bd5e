"""A packed folder and its modules as a notebook shows them. Names are anybody's, so all text is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Iterable, Sequence

if TYPE_CHECKING:
    from prepack.folder import Folder, Module

MOST_ROWS = 100
_MODULE_HEADS = ("module", "layout", "scheme", "N", "K", "group", "size")


def readable_bytes(count: int) -> str:
    """As the command line writes sizes: 1.5 MB."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95 or unit == "GB":
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th style='text-align: left'>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def folder_html(folder: Folder) -> str:
    shown = list(folder.values())[:MOST_ROWS]
    rows = [(module.name, module.layout, module.scheme, *module.shape, module.group_size,
             readable_bytes(module.nbytes)) for module in shown]
    more = len(folder) - len(shown)
    foot = f"<p>and {more} more: the folder is a mapping of their names</p>" if more > 0 else ""
    others = f"{len(folder.kept)} kept as they were, {len(folder.tensors)} other tensors"
    return (f"<div><b>{escape(str(folder.path))}</b> for {escape(folder.target)}, made from "
            f"{escape(folder.source.format)}: {len(folder)} modules, {others}{_table(_MODULE_HEADS, rows)}{foot}</div>")


def module_html(module: Module) -> str:
    head = (f"<b>{escape(module.name)}</b>: {escape(module.layout)}, {escape(module.scheme)}, N {module.shape[0]}, "
            f"K {module.shape[1]}, group {module.group_size}")
    rows = [(name, part.dtype, " × ".join(map(str, part.shape)), readable_bytes(part.nbytes), part.file.name,
             part.offset) for name, part in module.parts.items()]
    return f"<div>{head}{_table(('part', 'dtype', 'shape', 'size', 'file', 'offset'), rows)}</div>"
