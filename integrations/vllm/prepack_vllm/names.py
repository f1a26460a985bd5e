"""Do the names in a manifest mean what vLLM takes them for? Asked of the manifest alone."""

from collections.abc import Sequence

from prepack_vllm.errors import Malformed
from prepack_vllm.layer_names import FUSED
from prepack_vllm.manifest import Manifest, PackedModule

_HINT = "Pack the checkpoint again, and run prepack verify"
# The layers of an expert in a stack of this name.
STACKS = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "down_proj": ("down_proj",),
    "w13": ("w1", "w3"),
    "w2": ("w2",),
}
# What vLLM would load over a packed module, or over its place in a fused layer. Tensors of other names
# may have passed through from the source; vLLM knows no parameter for them, and says so.
_PARTS = ("weight", "weight_scale", "weight_scale_inv", "bias")


def check_names(manifest: Manifest) -> None:
    for module in manifest.modules.values():
        _check_parts(module)
        _check_fused(module)
        if module.name in manifest.kept:
            raise Malformed(module.name, "it is packed, and kept as it was stored", hint=_HINT)
    packed = {name for one in manifest.modules.values() for name in (one.name, *one.fused)}
    for tensor in manifest.tensors:
        module, _, part = tensor.name.rpartition(".")
        if module in packed and part in _PARTS:
            raise Malformed(
                tensor.name,
                "the tensor lies beside the packed module that it belongs to",
                hint=_HINT,
            )


def _check_parts(module: PackedModule) -> None:
    for name, part in module.parts.items():
        if part.name != f"{module.name}.{name}":
            raise Malformed(
                module.name,
                f"part {name} is another tensor",
                found=part.name,
                expected=f"{module.name}.{name}",
                hint=_HINT,
            )


def _check_fused(module: PackedModule) -> None:
    """vLLM runs the layers that it finds under a name in its order, whatever a manifest says."""
    if module.experts:
        expected = _names_of_experts(module.name, module.experts)
    else:
        parent, _, last = module.name.rpartition(".")
        layers = [f"{parent}.{name}" if parent else name for name in FUSED.get(last, ())]
        expected = [layers] if module.fused else [[]]
    if list(module.fused) not in expected:
        raise Malformed(
            module.name,
            "it is not made of the layers that vLLM looks for under its name",
            found=_some(module.fused),
            expected=" or ".join(filter(None, map(_some, expected))) or "one layer",
            hint=_HINT,
        )


def _names_of_experts(stack: str, experts: int) -> list[list[str]]:
    """Of the layers in a stack: as checkpoints that store each expert by itself name them, and as
    prepack names the slices of a tensor that holds all."""
    mixture, _, last = stack.rpartition(".")
    if mixture.rpartition(".")[2] != "experts" or last not in STACKS:
        return []
    names = [[f"{mixture}.{expert}.{name}" for expert in range(experts) for name in STACKS[last]]]
    if last.endswith("_proj"):
        names.append([f"{stack}.{expert}" for expert in range(experts)])
    return names


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6])
    return f"{shown}, … ({len(names)} in all)" if len(names) > 6 else shown
