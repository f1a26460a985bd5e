"""Recorded activations of tiny models, by the real runtimes: names, rows, and what verify says of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import convert
from safetensors import safe_open
from safetensors.torch import load_file
from tiny_models import LLAMA, QWEN2, QWEN3_MOE, bf16, write_bytes, write_quantized

from prepack_vllm.record import main

PROMPTS = [[5, 12, 33, 7, 100, 4, 9, 81], list(range(1, 15))]
TOKENS = sum(map(len, PROMPTS))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Float models, and their quantized checkpoints."""
    folder = tmp_path_factory.mktemp("record")
    for name, model in (("qwen2", QWEN2), ("moe", QWEN3_MOE)):
        write_bytes(folder / name, model, lambda weight: {"weight": bf16(weight)}, None)
        write_quantized(folder / f"{name}-w4", model, "ct", 32, True)
    write_quantized(folder / "gptq", LLAMA, "gptq", 32, True)
    lines = [json.dumps({"prompt_token_ids": prompt}) for prompt in PROMPTS]
    (folder / "prompts.jsonl").write_text("\n".join(lines))
    (folder / "prompts.txt").write_text("w5 w12 w33 w7 w100 w4 w9 w81\n")
    return folder


def record(models: Path, model: str, out: Path, *options: str, prompts="prompts.jsonl"):
    """In a process of its own, as users run it."""
    command = [sys.executable, "-m", "prepack_vllm.record", models / model, "-o", out]
    command += ["--prompts", models / prompts, *options]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ)


def recorded(models: Path, model: str, out: Path, *options: str, **more):
    done = record(models, model, out, *options, **more)
    assert done.returncode == 0, done.stderr
    return load_file(out), done.stdout


def verify(packed: Path, activations: Path):
    program = os.environ.get("PREPACK", "prepack")
    command = [program, "verify", packed, "--activations", activations, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("runtime", ["vllm", "transformers"])
def test_every_module_has_the_rows_that_the_prompts_give(models, tmp_path, runtime):
    options = ("--for", str(models / "qwen2-w4"), "--runtime", runtime)
    found, said = recorded(models, "qwen2", tmp_path / "acts.safetensors", *options)
    assert len(found) == 14 and f"from {TOKENS} tokens of 2 prompts" in said
    layer = "model.layers.0"
    shapes = {name.rpartition(".")[2]: tuple(x.shape) for name, x in found.items()}
    assert shapes["down_proj"] == (TOKENS, 256) and shapes["q_proj"] == (TOKENS, 128)
    q, k, v = (found[f"{layer}.self_attn.{name}_proj"] for name in "qkv")
    assert torch.equal(q, k) and torch.equal(q, v) and q.dtype == torch.bfloat16
    # The first layer reads norms of embeddings, which can be computed here.
    weights = load_file(models / "qwen2" / "model.safetensors")
    x = weights["model.embed_tokens.weight"][sum(PROMPTS, [])].float()
    x = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    expected = x * weights[f"{layer}.input_layernorm.weight"].float()
    torch.testing.assert_close(q.float(), expected, rtol=2**-7, atol=1e-4)


def test_both_runtimes_see_the_same(models, tmp_path):
    both = [
        recorded(models, "qwen2", tmp_path / f"{runtime}.safetensors", "--runtime", runtime, "--for",
                 str(models / "qwen2-w4"), "--rows", "9")[0]
        for runtime in ("vllm", "transformers")
    ]  # fmt: skip
    for name, x in both[0].items():
        other = both[1][name].float()
        assert x.shape == other.shape and x.shape[0] == 9
        assert (x.float() - other).norm() < 0.05 * other.norm(), name


def test_verify_takes_them_fused_or_not(models, tmp_path):
    acts = tmp_path / "acts.safetensors"
    recorded(models, "qwen2-w4", acts, "--runtime", "transformers", prompts="prompts.txt")
    with safe_open(acts, "pt") as file:
        tokens = int(file.metadata()["tokens"])
    for number, options in enumerate([(), ("--fuse",)]):
        packed = convert(models / "qwen2-w4", tmp_path / str(number), "-t", "vllm-cpu", *options)
        report = verify(packed, acts)
        for module in report["modules"]:
            inputs = {one["input"]: one for one in module["gemm"]["inputs"]}
            assert inputs["recorded"]["rows"] == tokens > 0
    # Of the packed folder the names are the same.
    found, _ = recorded(models, "qwen2", tmp_path / "b.safetensors", "--for", str(packed), "--runtime", "vllm")
    assert found.keys() == load_file(acts).keys()


def test_experts_have_the_rows_that_were_routed_to_them(models, tmp_path):
    options = ("--for", str(models / "moe-w4"), "--expert-rows", "1000")
    acts = tmp_path / "transformers.safetensors"
    found, _ = recorded(models, "moe", acts, "--runtime", "transformers", *options)
    served, said = recorded(models, "moe", tmp_path / "vllm.safetensors", "--runtime", "vllm", *options)
    assert "not recorded" in said and "experts.0.down_proj" in said
    assert len(found) == 2 * (4 + 3 * QWEN3_MOE.experts)
    for layer in range(2):
        for name in ("gate", "up"):
            rows = [
                tensors[f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj"].shape[0]
                for tensors in (found, served)
                for expert in range(QWEN3_MOE.experts)
            ]
            # Two experts per token.
            assert sum(rows[: QWEN3_MOE.experts]) == sum(rows[QWEN3_MOE.experts :]) == 2 * TOKENS
    mixture = "model.layers.0.mlp.experts.1"
    gate, up, down = (found[f"{mixture}.{name}_proj"] for name in ("gate", "up", "down"))
    assert torch.equal(gate, up)
    weights = load_file(models / "moe" / "model.safetensors")
    hidden = [x.float() @ weights[f"{mixture}.{name}_proj.weight"].float().T
              for name, x in (("gate", gate), ("up", up))]  # fmt: skip
    expected = torch.nn.functional.silu(hidden[0]) * hidden[1]
    assert (down.float() - expected).norm() < 0.02 * expected.norm()
    packed = convert(models / "moe-w4", tmp_path / "packed", "-t", "vllm-cpu", "--fuse")
    verify(packed, acts)


def test_what_cannot_be_run_is_said(models, tmp_path):
    done = record(models, "gptq", tmp_path / "a.safetensors", "--runtime", "transformers")
    if "optimum" in done.stderr:  # not installed
        assert done.returncode == 6
        assert "Record from the unquantized model, with --for" in done.stderr
    # Another number of layers: Transformers would make the weights up.
    config = json.loads((models / "qwen2" / "config.json").read_text())
    larger = tmp_path / "larger"
    larger.mkdir()
    for file in (models / "qwen2").iterdir():
        (larger / file.name).symlink_to(file)
    (larger / "config.json").unlink()
    (larger / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    done = record(models, str(larger), tmp_path / "a.safetensors", "--runtime", "transformers",
                  "--for", str(models / "qwen2-w4"))  # fmt: skip
    assert done.returncode == 3 and "does not find weights of the model" in done.stderr
    assert not (tmp_path / "a.safetensors").exists()
    assert main([str(models / "qwen2"), "--prompts", str(models / "none"), "-o", "acts.safetensors"]) == 4
