#!/usr/bin/env python3
"""Records what the plug-in takes from a version of vLLM, from its source: signatures, no code.

    tests/record_vllm_api.py VERSION ROOT

ROOT holds `vllm/`: an unpacked source distribution, or site-packages. Op schemas are read from
`csrc/cpu/torch_bindings.cpp` below ROOT; an installed vLLM has none, so they are asked of its library.
Writes its part of vllm_api.json.
"""

import ast
import json
import re
import sys
from pathlib import Path

from plugin_use import Use, methods_of, parameters, use_of_vllm, wanted_of

TABLE = Path(__file__).with_name("vllm_api.json")


class Tree:
    def __init__(self, root: Path):
        self.root = root
        self.parsed: dict[str, ast.Module] = {}

    def path(self, module: str) -> Path | None:
        base = self.root.joinpath(*module.split("."))
        places = (base.with_suffix(".py"), base / "__init__.py")
        return next((place for place in places if place.is_file()), None)

    def is_module(self, module: str) -> bool:
        return self.path(module) is not None

    def find(self, module: str, name: str) -> tuple[str, ast.stmt] | None:
        """Where a name is defined, through imports: its module and its statement."""
        path = self.path(module)
        if path is None:
            return None
        if module not in self.parsed:
            self.parsed[module] = ast.parse(path.read_text())
        for node in ast.walk(self.parsed[module]):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return module, node
            if isinstance(node, ast.ImportFrom):
                for one in node.names:
                    if one.name == "*":
                        found = self.find(self._origin(module, path, node), name)
                        if found is not None:
                            return found
                    elif (one.asname or one.name) == name:
                        return self.find(self._origin(module, path, node), one.name)
            if any(isinstance(one, ast.Name) and one.id == name for one in _targets(node)):
                return module, node
        return None

    @staticmethod
    def _origin(module: str, path: Path, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return str(node.module)
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        package = package[: len(package) - node.level + 1]
        return ".".join([*package, *([node.module] if node.module else [])])

    def bases(self, module: str, body: ast.ClassDef) -> list[tuple[str, ast.ClassDef]]:
        """The class and its bases in vLLM, the nearest first."""
        found = [(module, body)]
        for base in body.bases:
            place = self._base(module, base)
            if place is not None and isinstance(place[1], ast.ClassDef):
                found += self.bases(*place)
        return found

    def _base(self, module: str, base: ast.expr) -> tuple[str, ast.stmt] | None:
        if isinstance(base, ast.Name):
            return self.find(module, base.id)
        if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
            for node in ast.walk(self.parsed[module]):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    for one in node.names:
                        if (one.asname or one.name) == base.value.id:
                            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                            return self.find(f"{prefix}{one.name}", base.attr)
        return None

    def describe(self, use: Use, full_name: str) -> object:
        """A function: its parameters. A class: the methods and fields that the plug-in knows."""
        found = self.find(*full_name.split(":"))
        if found is None:
            return None
        if isinstance(found[1], ast.FunctionDef):
            return parameters(found[1])
        if not isinstance(found[1], ast.ClassDef):
            return "value"
        methods, fields = wanted_of(use, full_name)
        own: dict[str, list[str]] = {}
        has: set[str] = set()
        dataclass_fields: list[str] = []
        for _, body in reversed(self.bases(*found)):
            for name, one in methods_of(body).items():
                own[name] = one
            has |= own.keys() | _assigned(body)
            if any("dataclass" in ast.unparse(one) for one in body.decorator_list):
                dataclass_fields += [
                    one.target.id + "=" * (one.value is not None)
                    for one in body.body
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                ]
                own["__init__"] = ["self", *dataclass_fields]
        return {
            "methods": {name: own[name] for name in sorted(methods & own.keys())},
            "fields": sorted(fields & has),
        }


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def _assigned(body: ast.ClassDef) -> set[str]:
    """Fields of the class, and what its methods assign to self."""
    names = set()
    for node in ast.walk(body):
        for one in _targets(node):
            if isinstance(one, ast.Name):
                names.add(one.id)
            elif isinstance(one, ast.Attribute) and getattr(one.value, "id", "") == "self":
                names.add(one.attr)
    return names


def schemas(root: Path, ops: set[str]) -> dict[str, list[str]]:
    """The arguments of ops, by name."""
    bindings = root / "csrc" / "cpu" / "torch_bindings.cpp"
    if bindings.is_file():
        text = re.sub(r'"\s*"', "", bindings.read_text())
        found = dict(re.findall(r'ops\.def\(\s*"(\w+)\(([^"]*)\) ?->', text))
        return {op: found[op].split(", ") if found[op] else [] for op in sorted(ops) if op in found}
    import torch
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    there = [op for op in sorted(ops) if hasattr(torch.ops._C, op)]
    return {
        op: [_argument(one) for one in getattr(torch.ops._C, op).default._schema.arguments]
        for op in there
    }


def _argument(argument) -> str:
    default = f"={argument.default_value}" if argument.has_default_value() else ""
    return f"{argument.type} {argument.name}{default}"


def record(root: Path) -> dict:
    tree = Tree(root)
    use = use_of_vllm(tree.is_module)
    ops = {call.name for call in use.ops} | {"fused_experts_cpu"}
    return {
        "names": {name: tree.describe(use, name) for name in sorted(use.names)},
        "ops": schemas(root, ops),
    }


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    table = json.loads(TABLE.read_text()) if TABLE.is_file() else {}
    table[sys.argv[1]] = record(Path(sys.argv[2]))
    TABLE.write_text(_text(dict(sorted(table.items()))))


def _text(table: dict) -> str:
    """A line for each name and op."""
    versions = []
    for version, parts in table.items():
        blocks = [
            f'  "{part}": {{\n'
            + ",\n".join(f'   "{name}": {json.dumps(one)}' for name, one in entries.items())
            + "\n  }"
            for part, entries in parts.items()
        ]
        versions.append(f' "{version}": {{\n' + ",\n".join(blocks) + "\n }")
    return "{\n" + ",\n".join(versions) + "\n}\n"


if __name__ == "__main__":
    main()
