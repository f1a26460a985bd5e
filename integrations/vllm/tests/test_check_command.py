"""`python -m prepack_vllm.check`: every layout through its op, exit codes, and what it prints."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import torch
from conftest import convert
from folders import CHECKPOINTS, DOWN, edit_manifest, edit_tensors, follow_file

from prepack_vllm import kernels, platform
from prepack_vllm.layouts.wna16 import Wna16
from prepack_vllm.check import main

# By case: checkpoint, options of prepack convert, and the layouts that come out of it.
CASES = {
    "wna16": ("ct-w4a16-g128-sym", "vllm-cpu", [], {"vllm-cpu/wna16"}),
    "wna16_asymmetric": ("awq-gemm-g128", "vllm-cpu", [], {"vllm-cpu/wna16"}),
    "wna16_channel": ("ct-w4a16-channel-sym", "vllm-cpu", [], {"vllm-cpu/wna16"}),
    "wna16_ordered": ("gptqmodel-w4-actorder-g128", "vllm-cpu", [], {"vllm-cpu/wna16"}),
    "wna16_f16": ("ct-w4a16-g128-sym", "vllm-cpu", ["--dtype", "f16"], {"vllm-cpu/wna16"}),
    "int4_w4a8": ("ct-w4a16-g32-asym", "vllm-cpu", ["--scheme", "w4a8"], {"vllm-cpu/int4-w4a8"}),
    "int8_vnni": ("ct-w8a8-dynamic", "vllm-cpu", [], {"vllm-cpu/int8-vnni"}),
    "fp8_block": ("ct-fp8-block", "vllm-cpu", [], {"vllm-cpu/fp8-vnni"}),
    "fp8_channel": ("ct-fp8-w8a16", "vllm-cpu", [], {"vllm-cpu/fp8-vnni"}),
    "bf16": (
        "gptqmodel-w8-sym", "vllm-cpu", ["--fallback", "dequantize"], {"vllm-cpu/bf16-vnni"},
    ),
    "plain": ("ct-w4a16-g128-sym", "vllm-cpu", ["--scheme", "bf16"], {"plain/bf16"}),
    "mxfp4": ("gpt-oss-mxfp4", "vllm-cpu", [], {"vllm-cpu/mxfp4"}),
    "mixed": (
        "ct-w4a16-g32-asym", "vllm-cpu", ["--scheme", "mlp=w4a8"],
        {"vllm-cpu/wna16", "vllm-cpu/int4-w4a8"},
    ),
    "woq": ("ct-w4a16-g128-sym", "zentorch", [], {"zentorch/woq"}),
    "woq_asymmetric": ("ct-w4a16-g32-asym", "zentorch", [], {"zentorch/woq"}),
    "da8w4": ("ct-w4a16-g128-sym", "zentorch", ["--scheme", "w4a8"], {"zentorch/da8w4"}),
    "zentorch_int8": ("ct-w8a8-dynamic", "zentorch", [], {"zentorch/int8"}),
}  # fmt: skip
SCHEMA = json.loads((Path(__file__).parents[1] / "check.schema.json").read_text())
STATIC = ("ct-w8a8-static", "ct-w8a8-asym-act")


@pytest.fixture(autouse=True)
def zentorch(monkeypatch, standins):
    """Where zentorch's ops are stand-ins, vLLM's platform is not that for zentorch."""
    if any(name.startswith("zentorch::") for name in standins):
        monkeypatch.setattr(platform, "zentorch_runs", lambda: True)


@pytest.fixture(scope="module")
def wna16(tmp_path_factory):
    source = CHECKPOINTS / "ct-w4a16-g128-sym"
    return convert(source, tmp_path_factory.mktemp("check") / "packed", "--target", "vllm-cpu")


@pytest.fixture
def folder(wna16, tmp_path):
    return shutil.copytree(wna16, tmp_path / "folder")


def test_what_is_loaded_where_other_weights_were_is_multiplied_with(standins):
    """zentorch keeps what it has made of weights by their address."""
    if "zentorch::zentorch_woq_linear" in standins:
        pytest.skip("stand-ins keep nothing")
    weight = torch.randint(-(2**31), 2**31 - 1, (64, 16), dtype=torch.int32)
    scales = torch.full((4, 64), 0.01, dtype=torch.bfloat16)
    x = torch.randn(4, 128, dtype=torch.bfloat16)

    def multiply(codes):
        return torch.ops.zentorch.zentorch_woq_linear(x, codes.t(), scales, None, None)

    multiply(weight)
    other = weight.flip(0).contiguous()
    expected = multiply(other)
    weight.copy_(other)
    kernels.forget_weights()
    assert torch.equal(multiply(weight), expected)


def test_weights_are_forgotten_after_each_module(folder, monkeypatch, capsys):
    forgotten = []
    monkeypatch.setattr("prepack_vllm.check.forget_weights", lambda: forgotten.append(True))
    assert main([str(folder), "--json"]) == 0
    assert len(forgotten) == len(json.loads(capsys.readouterr().out)["modules"])


def bar_of(layouts):
    """Rounding once to bf16 leaves 48 dB and more; 8-bit activations and f32 sums in bf16 less."""
    names = {one.split("/")[1] for one in layouts}
    if names & {"int4-w4a8", "int8-vnni", "da8w4", "int8"}:
        return 35
    # vLLM's op truncates weights to bf16 on CPUs that cannot round them.
    truncates = "wna16" in names and not torch.cpu._is_avx512_bf16_supported()
    return 45 if truncates else 48


@pytest.mark.parametrize("case", CASES)
def test_every_layout_passes(case, tmp_path, capsys):
    checkpoint, target, options, layouts = CASES[case]
    folder = convert(CHECKPOINTS / checkpoint, tmp_path / "packed", "--target", target, *options)
    code = main([str(folder), "--json"])
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    assert (code, report["result"]) == (0, "passed")
    assert {module["layout"] for module in report["modules"]} == layouts
    manifest = json.loads((folder / "prepack.json").read_text())
    assert [module["module"] for module in report["modules"]] == list(manifest["modules"])
    assert all(module["sqnr_db"] >= bar_of(layouts) for module in report["modules"])


@pytest.mark.parametrize("checkpoint", STATIC)
def test_plain_int8_runs_in_onednn(checkpoint, tmp_path, capsys):
    """The real op, on every CPU. Without VNNI its sums may saturate, which the bar shows."""
    folder = convert(CHECKPOINTS / checkpoint, tmp_path / "packed", "--target", "vllm-cpu")
    code = main([str(folder), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert {module["layout"] for module in report["modules"]} == {"vllm-cpu/int8-plain"}
    if torch.cpu._is_vnni_supported():
        assert code == 0
    assert code in (0, 1)
    assert all(module["sqnr_db"] > 20 for module in report["modules"])


def test_the_table(folder, capsys):
    assert main([str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["module", "layout", "dB", "at", "least", "worst", "channel", "op"]
    assert lines[1].split()[:2] == [DOWN, "vllm-cpu/wna16"]
    assert "_C::cpu_gemm_wna16" in lines[1] and lines[1].endswith("passed")
    assert lines[-1] == "passed: 7 of 7 modules"


def test_an_op_that_fails_is_named(folder, capsys, monkeypatch):
    def fail(self, x, bias):
        raise RuntimeError("expect scales2 to be float32.\nat some line")

    monkeypatch.setattr(Wna16, "__call__", fail)
    assert main([str(folder)]) == 4
    error = capsys.readouterr().err
    assert f"{DOWN}: the op of vllm-cpu/wna16 failed: expect scales2 to be float32." in error
    assert "at some line" not in error


def test_kernels_are_made_with_the_default_dtype_that_vllm_loads_with(folder, monkeypatch):
    seen = []
    make = Wna16.__init__
    monkeypatch.setattr(
        Wna16,
        "__init__",
        lambda self, *parts: (seen.append(torch.get_default_dtype()), make(self, *parts))[1],
    )
    assert main([str(folder)]) == 0
    assert set(seen) == {torch.bfloat16} and torch.get_default_dtype() == torch.float32


def test_an_op_that_computes_something_else_fails(folder, capsys, monkeypatch):
    call = Wna16.__call__
    monkeypatch.setattr(
        Wna16, "__call__", lambda self, x, bias: call(self, x, bias).flip(1)
    )
    assert main([str(folder)]) == 1
    assert capsys.readouterr().out.endswith("failed: 0 of 7 modules\n")


def test_an_op_that_yields_nan_fails(folder, capsys, monkeypatch):
    call = Wna16.__call__
    monkeypatch.setattr(
        Wna16, "__call__", lambda self, x, bias: call(self, x, bias) * torch.nan
    )
    assert main([str(folder), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    assert report["modules"][0]["sqnr_db"] == "-inf"


def test_a_flipped_bit_is_damage(folder, capsys):
    def change(tensors):
        tensors[f"{DOWN}.weight"][0, 0] ^= 1

    edit_tensors(folder, change)
    follow_file(folder)
    assert main([str(folder)]) == 1
    assert "FAILED: weight is damaged" in capsys.readouterr().out


def test_zeros_are_no_pass(tmp_path, capsys, folder):
    def change(tensors):
        for name, tensor in tensors.items():
            if name.endswith("_scale"):
                tensor.zero_()

    edit_tensors(folder, change)
    follow_file(folder)
    import xxhash

    digests = {}

    def collect(tensors):
        for name, tensor in tensors.items():
            data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
            digests[name] = xxhash.xxh3_128_hexdigest(data)

    edit_tensors(folder, collect)

    def follow(document):
        for module in document["modules"].values():
            for part in module["parts"].values():
                part["xxh3_128"] = digests[part["tensor"]]

    edit_manifest(folder, follow)
    assert main([str(folder)]) == 6
    assert "not run: zeros" in capsys.readouterr().out


def test_nothing_to_run_is_no_pass(folder, capsys):
    def change(document):
        parts = [p for module in document["modules"].values() for p in module["parts"].values()]
        document["tensors"] += parts
        document.update(modules={}, layouts={})

    edit_manifest(folder, change)
    assert main([str(folder)]) == 6
    assert "the folder has no packed module to run" in capsys.readouterr().err


def test_a_machine_that_cannot_run_it(folder, capsys, monkeypatch):
    monkeypatch.setattr(platform, "has_op", lambda name: False)
    assert main([str(folder)]) == 6
    assert capsys.readouterr().err.startswith("error: ")


def test_malformed_and_unsupported(folder, capsys):
    edit_manifest(folder, lambda document: document.update(manifest_version=3))
    assert main([str(folder)]) == 5
    (folder / "prepack.json").write_text("")
    assert main([str(folder)]) == 3
    assert main([str(folder / "none")]) == 5


def test_usage(capsys):
    with pytest.raises(SystemExit) as exit:
        main([])
    assert exit.value.code == 2


def test_the_command_by_itself(folder, standins):
    """In a process of its own there are no stand-ins: what a user of this machine sees."""
    command = [sys.executable, "-m", "prepack_vllm.check", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "_C::cpu_gemm_wna16" in standins:
        assert done.returncode == 6
        assert "vllm-cpu/wna16 needs the op _C::cpu_gemm_wna16" in done.stderr
    else:
        assert done.returncode == 0
        assert "passed: 7 of 7 modules" in done.stdout


def test_vllm_by_itself(folder, standins, monkeypatch):
    """vLLM's own start, in which the plugin is found as any other."""
    monkeypatch.setenv("VLLM_PLUGINS", "prepack")
    program = f"import vllm; vllm.LLM({str(folder)!r}, max_model_len=64, enforce_eager=True)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if "_C::cpu_gemm_wna16" in standins:
        assert done.returncode != 0
        assert "vllm-cpu/wna16 needs the op _C::cpu_gemm_wna16" in done.stderr
    else:
        assert done.returncode == 0
