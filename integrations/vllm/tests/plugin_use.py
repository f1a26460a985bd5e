"""What the plug-in takes from vLLM, read from its source: names, calls, overridden methods, fields and
ops. Nothing is imported, so that it can be held against a vLLM that is not installed. For tests only."""

import ast
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "prepack_vllm"
_CONFIG = "vllm.model_executor.layers.fused_moe.config:FusedMoEConfig"
# What attributes and parameters without an annotation are.
_MEMBERS = {"moe": _CONFIG, "moe_config": _CONFIG}
_KERNEL = "vllm.model_executor.layers.fused_moe.modular_kernel:FusedMoEKernel"
_OBJECTS = {"self.moe_kernel": _KERNEL}
# Replaced in the class itself: see hooks.py.
_HOOKS = [
    ("get_all_weights", ["self", "model_config", "model"]),
    ("load_model", ["self", "vllm_config", "*more", "**named"]),
]
_HOOKED = [
    f"vllm.model_executor.model_loader:{loader}"
    for loader in ("DefaultModelLoader", "RunaiModelStreamerLoader")
]


@dataclass(frozen=True)
class Call:
    name: str  # module:name, or an op
    positional: int
    keywords: tuple[str, ...]
    spreads: bool  # * or ** among the arguments
    where: str


@dataclass
class Use:
    names: dict[str, str] = field(default_factory=dict)  # to where
    calls: list[Call] = field(default_factory=list)
    overrides: list[tuple[str, str, list[str], str]] = field(default_factory=list)
    fields: dict[tuple[str, str], str] = field(default_factory=dict)  # (class, field) to where
    ops: list[Call] = field(default_factory=list)
    method_calls: list[tuple[str, Call]] = field(default_factory=list)  # class, and its method


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """As `a`, `a=` with a default, `*a` or a bare `*`, and `**a`."""
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    first_default = len(names) - len(arguments.defaults)
    names = [name + "=" * (index >= first_default) for index, name in enumerate(names)]
    if arguments.vararg or arguments.kwonlyargs:
        names.append("*" + (arguments.vararg.arg if arguments.vararg else ""))
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        names.append(one.arg + "=" * (default is not None))
    return names + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])


def signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Of a method, without self or cls; how it is called comes first."""
    kinds = {one.id for one in function.decorator_list if isinstance(one, ast.Name)}
    if "staticmethod" in kinds:
        return ["static", *parameters(function)]
    if "property" in kinds:
        return ["property"]
    return ["class" if "classmethod" in kinds else "self", *parameters(function)[1:]]


def methods_of(body: ast.ClassDef) -> dict[str, list[str]]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {one.name: signature(one) for one in body.body if isinstance(one, functions)}


class _File:
    def __init__(self, path: Path, use: Use):
        self.path = path
        self.use = use
        self.tree = ast.parse(path.read_text())
        self.names: dict[str, str] = {}  # local name to module:name
        self.modules: dict[str, str] = {}  # local name to module
        self.classes = {one.name: one for one in ast.walk(self.tree) if isinstance(one, ast.ClassDef)}

    def where(self, node: ast.AST) -> str:
        return f"{self.path.name}:{node.lineno}"  # type: ignore[attr-defined]

    def read(self, is_module) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm"):
                for one in node.names:
                    full = f"{node.module}.{one.name}"
                    if is_module(full):
                        self.modules[one.asname or one.name] = full
                    else:
                        self._take(f"{node.module}:{one.name}", one.asname or one.name, node)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute):
                self._read_attribute(node)
            elif isinstance(node, ast.Call):
                self._read_call(node)
            elif isinstance(node, ast.FunctionDef):
                self._read_fields(node)
        for body in self.classes.values():
            self._read_class(body)

    def _take(self, name: str, local: str, node: ast.AST) -> None:
        self.names[local] = name
        self.use.names.setdefault(name, self.where(node))

    def _resolve(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = self.modules.get(node.value.id)
            return f"{module}:{node.attr}" if module else None
        return None

    def _read_attribute(self, node: ast.Attribute) -> None:
        name = self._resolve(node)
        if name:
            self.use.names.setdefault(name, self.where(node))
        owner = node.value
        last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", None)
        if last in _MEMBERS:
            self.use.fields.setdefault((_MEMBERS[last], node.attr), self.where(node))

    def _read_call(self, node: ast.Call) -> None:
        text = ast.unparse(node.func)
        name = self._resolve(node.func)
        if name:
            self.use.calls.append(self._call(name, node))
        owner, _, last = text.rpartition(".")
        if owner == "torch.ops._C":
            self.use.ops.append(self._call(last, node))
        elif owner in _OBJECTS:
            self.use.method_calls.append((_OBJECTS[owner], self._call(last, node)))

    def _call(self, name: str, node: ast.Call) -> Call:
        keywords = tuple(one.arg for one in node.keywords if one.arg)
        spreads = any(isinstance(one, ast.Starred) for one in node.args)
        spreads |= len(keywords) != len(node.keywords)
        return Call(name, len(node.args), keywords, spreads, self.where(node))

    def _read_fields(self, function: ast.FunctionDef) -> None:
        """Of parameters that are annotated with a class of vLLM's."""
        typed = {
            one.arg: name
            for one in function.args.args
            if one.annotation is not None and (name := self._resolve(one.annotation))
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = typed.get(node.value.id)
                if owner:
                    self.use.fields.setdefault((owner, node.attr), self.where(node))

    def _read_class(self, body: ast.ClassDef) -> None:
        own, bases = self._methods_and_bases(body)
        own.pop("__init__", None)  # which the plug-in calls, not vLLM
        for base in bases:
            for method, parameters_of_it in own.items():
                place = (base, method, parameters_of_it, self.where(body))
                self.use.overrides.append(place)
        for node in ast.walk(body):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
                self.use.calls += [self._call(base, node) for base in bases[:1]]

    def _methods_and_bases(self, body: ast.ClassDef) -> tuple[dict[str, list[str]], list[str]]:
        """With those of bases in the same file."""
        own, bases = {}, []
        for base in body.bases:
            local = self.classes.get(base.id) if isinstance(base, ast.Name) else None
            if local is not None:
                more, further = self._methods_and_bases(local)
                own |= more
                bases += further
            elif name := self._resolve(base):
                bases.append(name)
        return own | methods_of(body), bases


def use_of_vllm(is_module, package: Path = PACKAGE) -> Use:
    """`is_module`: is a dotted name a module of vLLM's?"""
    use = Use()
    for path in sorted(package.rglob("*.py")):
        _File(path, use).read(is_module)
    for loader in _HOOKED:
        use.names.setdefault(loader, "hooks.py")
        use.overrides += [(loader, *hook, "hooks.py") for hook in _HOOKS]
    return use


def wanted_of(use: Use, name: str) -> tuple[set[str], set[str]]:
    """Methods and fields of a class that the plug-in overrides or reads."""
    methods = {method for base, method, _, _ in use.overrides if base == name}
    methods |= {call.name for owner, call in use.method_calls if owner == name}
    if any(call.name == name for call in use.calls):
        methods.add("__init__")
    return methods, {one for owner, one in use.fields if owner == name}
