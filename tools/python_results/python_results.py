#!/usr/bin/env python3
"""Writes integrations/python/src/prepack/results.py: a dataclass for every object of schemas/*.json.

With --check, it only says whether the file is what it would write. Objects of the same fields in
several schemas are one class.
"""

import argparse
import json
import keyword
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "integrations" / "python" / "src" / "prepack" / "results.py"
# The manifest is read by prepack.open, which holds it against the files, and reports of parts by --merge.
LEFT_OUT = {"manifest", "part_report"}
# The names of objects for which the name of the property that they stand under would say too little.
NAMES = {
    ("inspect-find", "weight"): "FoundWeight",
    ("inspect-layout", "drawn"): "DrawnModule",
    ("diff", "side"): "DiffSide",
    ("diff", "element"): "DiffElement",
    ("verify", "regression"): "VerifyRegression",
    ("inspect", "statistics"): "ModuleStatistics",
    ("inspect", "files"): "InspectFile",
    ("inspect-gguf", "files"): "InspectFile",
    ("message", "error"): "ErrorMessage",
    ("message", "note"): "NoteMessage",
    ("message", "progress"): "Progress",
}
HEAD = '''"""What the functions of prepack return: the documents of `--json`, as dataclasses.

tools/python_results writes this file from schemas/*.json, which also say what the fields mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Literal, Optional, Tuple, Union

from prepack.record import Document, Record
'''


def camel(name):
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[-_]", name))


def singular(name):
    if name.endswith("ies"):
        return name[:-3] + "y"
    return name[:-1] if name.endswith("s") and not name.endswith(("ss", "statistics", "levels")) else name


def without_words(schema):
    """The schema without what is for people, so that equal ones are equal."""
    if isinstance(schema, dict):
        return {key: without_words(value) for key, value in schema.items() if key != "description"}
    return [without_words(value) for value in schema] if isinstance(schema, list) else schema


def is_object(schema):
    return "properties" in schema


class Schema:
    """One file of schemas/."""

    def __init__(self, path):
        self.document = json.loads(path.read_text())
        self.name = self.document["$id"].split(":")[1]

    def resolved(self, schema):
        """The schema, and the name of the definition that it refers to, if any."""
        if "$ref" not in schema:
            return schema, None
        name = schema["$ref"].rsplit("/", 1)[1]
        return self.document["$defs"][name], name

    def expanded(self, schema):
        """With definitions in the place of references: what two files can be compared by."""
        if isinstance(schema, list):
            return [self.expanded(value) for value in schema]
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:
            return self.expanded(self.resolved(schema)[0])
        return {key: self.expanded(value) for key, value in schema.items()}

    def key(self, schema):
        fields = self.expanded(schema)
        return json.dumps(
            without_words({"properties": fields["properties"], "required": fields.get("required")}),
            sort_keys=True,
        )


class Classes:
    def __init__(self, schemas):
        self.schemas = schemas
        self.used_by = {}  # key → names of the schemas that have it
        for schema in schemas:
            self.count(schema, schema.document)
        self.by_key = {}  # key → class name
        self.texts = {}  # class name → its text, in the order in which they can be defined
        self.path = []  # the objects around the one that is being added

    def count(self, schema, part):
        if isinstance(part, dict):
            if is_object(part):
                self.used_by.setdefault(schema.key(part), set()).add(schema.name)
            for value in part.values():
                self.count(schema, value)
        elif isinstance(part, list):
            for value in part:
                self.count(schema, value)

    def class_name(self, schema, key, hint):
        if (schema.name, hint) in NAMES:
            return NAMES[schema.name, hint]
        name = camel(singular(hint))
        return name if len(self.used_by[key]) > 1 else camel(schema.name) + name

    def add(self, schema, part, hint, base="Record"):
        """The name of the class for an object."""
        key = schema.key(part)
        if key in self.by_key:
            return self.by_key[key]
        name = camel(schema.name) if hint is None else self.class_name(schema, key, hint)
        if name in self.texts and self.path:  # such as the levels of a module
            name = camel(schema.name) + camel(self.path[-1]) + camel(singular(hint))
        if name in self.texts:
            sys.exit(f"two different objects would be the class {name} ({schema.name}, {hint}): see NAMES")
        required = part.get("required", [])
        lines = {True: [], False: []}
        self.path.append(singular(hint or schema.name))
        for field, field_schema in part["properties"].items():
            if not field.isidentifier() or keyword.iskeyword(field):
                sys.exit(f"{schema.name}: {field} cannot be the name of a field")
            kind = self.type_of(schema, field_schema, field)
            if field in required:
                lines[True].append(f"    {field}: {kind}")
            else:
                kind = kind if kind.startswith("Optional[") else f"Optional[{kind}]"
                lines[False].append(f"    {field}: {kind} = None")
        self.path.pop()
        title = schema.document.get("title") if hint is None else None
        doc = f'    """{title}."""\n\n' if title else ""
        body = "\n".join(lines[True] + lines[False])
        self.by_key[key] = name
        self.texts[name] = f"@dataclass(frozen=True)\nclass {name}({base}):\n{doc}{body}\n"
        return name

    def type_of(self, schema, part, hint):
        part, definition = schema.resolved(part)
        hint = definition or hint
        if is_object(part):
            name = self.add(schema, part, hint)
            return f"Optional[{name}]" if "null" in part.get("type", ()) else name
        if "const" in part:
            return f"Literal[{literal(part['const'])}]"
        if "enum" in part:
            return literals(part["enum"])
        for choice in ("anyOf", "oneOf"):
            if choice in part:
                return union([self.type_of(schema, member, hint) for member in part[choice]])
        kinds = part["type"] if isinstance(part["type"], list) else [part["type"]]
        return union([self.plain_type(schema, part, kind, hint) for kind in kinds])

    def plain_type(self, schema, part, kind, hint):
        if kind == "array":
            item = self.type_of(schema, part["items"], hint)
            if "maxItems" in part and part["maxItems"] == part.get("minItems"):
                return f"Tuple[{', '.join([item] * part['maxItems'])}]"
            return f"Tuple[{item}, ...]"
        if kind == "object":
            return f"Dict[str, {self.type_of(schema, part['additionalProperties'], hint)}]"
        return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}[kind]


def literal(value):
    return json.dumps(value) if isinstance(value, str) else repr(value)


def literals(values):
    text = f"Literal[{', '.join(literal(value) for value in values if value is not None)}]"
    return f"Optional[{text}]" if None in values else text


def union(kinds):
    """Without duplicates; one with None is Optional."""
    flat = []
    for kind in kinds:
        inner = re.fullmatch(r"Optional\[(.*)\]", kind)
        for member in [inner[1], "None"] if inner else [kind]:
            if member not in flat:
                flat.append(member)
    others = [kind for kind in flat if kind != "None"]
    if not others:
        return "None"
    text = others[0] if len(others) == 1 else f"Union[{', '.join(others)}]"
    return f"Optional[{text}]" if "None" in flat else text


def results():
    paths = sorted((ROOT / "schemas").glob("*.schema.json"))
    schemas = [Schema(path) for path in paths if path.name.split(".")[0] not in LEFT_OUT]
    classes = Classes(schemas)
    documents = {}
    for schema in schemas:
        if is_object(schema.document):
            name = classes.add(schema, schema.document, None, "Document")
            documents[schema.document["properties"]["kind"]["const"]] = name
        else:
            for member in schema.document["oneOf"]:
                part, hint = schema.resolved(member)
                name = classes.add(schema, part, hint)
                documents[part["properties"]["kind"]["const"]] = name
    table = "".join(f"    {literal(kind)}: {name},\n" for kind, name in documents.items())
    texts = [HEAD, *classes.texts.values()]
    return "\n\n".join(texts) + f"\n\n# By the field `kind` of a document.\nDOCUMENTS = {{\n{table}}}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    text = results()
    if not options.check:
        RESULTS.write_text(text)
    elif not RESULTS.exists() or RESULTS.read_text() != text:
        sys.exit(f"out of date: {RESULTS.relative_to(ROOT)}. Write it again: tools/python_results/python_results.py")


if __name__ == "__main__":
    main()
