"""Questions of `prepack tune` and their answers: real ops, or the stand-ins of those that lack here."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import convert
from folders import CHECKPOINTS
from quantized import bytes_config, quantize_bytes
from safetensors.torch import load_file
from tiny_models import QWEN3_MOE, write_bytes, write_quantized
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

from prepack_vllm import bound_experts
from prepack_vllm.bound_experts import Mixture
from prepack_vllm.expert_kernels import ArmInt4Experts
from prepack_vllm.manifest import read_manifest
from prepack_vllm.measure import PROTOCOL, Session, _OpNames, serve

DOWN = "model.layers.0.mlp.down_proj"


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measure")
    return {
        scheme: convert(
            CHECKPOINTS / "ct-w4a16-g128-sym",
            folder / scheme,
            "--target",
            "vllm-cpu",
            "--scheme",
            scheme,
        )
        for scheme in ("w4a16", "w4a8")
    }


def prepare(session, folder: Path, module: str = DOWN, rows: int = 3):
    return session.answer(
        {
            "do": "prepare",
            "folder": str(folder),
            "module": module,
            "rows": rows,
            "cold_bytes": 1 << 20,
        }
    )


@pytest.mark.parametrize(
    ("scheme", "op"), [("w4a16", "_C::cpu_gemm_wna16"), ("w4a8", "_C::int4_scaled_mm_cpu")]
)
def test_a_kernel_is_prepared_timed_and_forgotten(packed, scheme, op):
    session = Session()
    assert prepare(session, packed[scheme]) == {"ok": True, "kernel": 1, "implementation": op}
    for _ in range(3):
        answer = session.answer({"do": "time", "kernel": 1})
        assert answer["ok"] and answer["seconds"] > 0
    assert session.answer({"do": "forget", "kernel": 1}) == {"ok": True}
    assert session.answer({"do": "time", "kernel": 1})["ok"] is False
    assert prepare(session, packed[scheme])["kernel"] == 2


def test_weights_in_bf16_run_in_the_op_that_vllm_chooses(tmp_path):
    folder = convert(
        CHECKPOINTS / "ct-w4a16-g128-sym", tmp_path / "bf16", "--target", "vllm-cpu",
        "--scheme", "bf16",
    )  # fmt: skip
    layer = torch.nn.Module()
    layer.weight = torch.nn.Parameter(
        load_file(folder / "model.safetensors")[DOWN + ".weight"], requires_grad=False
    )
    dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
    x = torch.randn(3, 1536, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    with torch.inference_mode(), _OpNames() as ops:
        y = layer.cpu_linear(x, layer.weight, None)
    session = Session()
    answer = prepare(session, folder)
    assert answer == {"ok": True, "kernel": 1, "implementation": ops.names[-1]}
    with torch.inference_mode():
        assert torch.equal(session._kernels[1].products[1](x), y)


def test_copies_take_as_much_memory_as_was_asked_for(packed):
    session = Session()
    prepare(session, packed["w4a16"])
    # A weight of 384 x 1536 nibbles, and 384 x 12 scales in bf16.
    size = 384 * 1536 // 2 + 384 * 12 * 2
    assert len(session._kernels[1].products) == -(-(1 << 20) // size) == 4


def test_what_cannot_be_done_is_an_answer(packed):
    session = Session()
    assert prepare(session, packed["w4a16"], "no.such.module")["message"] == (
        "KeyError: 'no.such.module'"
    )
    assert prepare(session, packed["w4a16"] / "nowhere")["ok"] is False
    assert "unknown question" in session.answer({"do": "dance"})["message"]
    other = session.answer({"do": "hello", "protocol": PROTOCOL + 1, "threads": 1})
    assert "another version of the protocol" in other["message"]


def test_an_op_that_fails_says_so_when_it_is_prepared(packed, monkeypatch):
    from prepack_vllm.layouts.wna16 import Wna16

    def fail(self, x, bias):
        raise RuntimeError("no AMX here\nand more")

    monkeypatch.setattr(Wna16, "__call__", fail)
    assert prepare(Session(), packed["w4a16"]) == {
        "ok": False,
        "message": "RuntimeError: no AMX here",
    }


def test_every_line_is_answered_by_a_line():
    answers = io.StringIO()
    serve(iter(['{"do": "a"}\n', '{"do": "b"}\n']), answers)
    lines = answers.getvalue().splitlines()
    assert [json.loads(line)["ok"] for line in lines] == [False, False]


def test_the_program_answers_on_its_standard_output_alone():
    question = json.dumps({"do": "hello", "protocol": PROTOCOL, "threads": 1}) + "\n"
    done = subprocess.run(
        [sys.executable, "-m", "prepack_vllm.measure"],
        input=question,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    (line,) = done.stdout.splitlines()
    answer = json.loads(line)
    assert answer["ok"] and answer["name"].startswith("vllm ")


MIXTURE = "model.layers.0.mlp.experts"


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experts")
    sources = {
        "int4": write_quantized(folder / "int4", QWEN3_MOE, "ct", 64, True),
        "int8": write_bytes(folder / "int8", QWEN3_MOE, quantize_bytes, bytes_config(True)),
    }
    return {name: convert(one, folder / f"p-{name}", "-t", "vllm-cpu") for name, one in sources.items()}


def ask_experts(session, folder, **changes):
    question = {
        "do": "prepare_experts",
        "folder": str(folder),
        "mixture": MIXTURE,
        "experts": QWEN3_MOE.experts,
        "top_k": 2,
        "rows": 5,
        "cold_bytes": 1,
    }
    return session.answer(question | changes)


@pytest.mark.parametrize("name", ["int4", "int8"])
def test_experts_run_in_the_op_that_vllm_runs(experts, name):
    session = Session()
    answer = ask_experts(session, experts[name])
    assert answer == {"ok": True, "kernel": 1, "implementation": "_C::fused_experts_cpu"}
    assert session.answer({"do": "time", "kernel": 1})["seconds"] > 0
    assert len(session._kernels[1].products) == 2


@pytest.mark.parametrize("name", ["int4", "int8"])
def test_experts_compute_what_their_weights_say(experts, name):
    mixture = Mixture(read_manifest(experts[name]), MIXTURE, QWEN3_MOE.experts, 2)
    x = torch.randn(6, QWEN3_MOE.hidden, generator=torch.Generator().manual_seed(2))
    found = mixture.bind()(x.bfloat16()).double()
    parts = load_file(experts[name].parent / name / "model.safetensors")

    def weight(expert, projection):
        module = f"{MIXTURE}.{expert}.{projection}_proj"
        scale = parts[f"{module}.weight_scale"].double()
        if name == "int8":
            return parts[f"{module}.weight"].double() * scale
        packed = parts[f"{module}.weight_packed"]
        codes = (packed[..., None] >> torch.arange(0, 32, 4) & 15).flatten(1).double() - 8
        return codes * scale.repeat_interleave(64, 1)

    expected = torch.zeros_like(found)
    for row, ids in enumerate(mixture.routes(6)[0]):
        for expert in ids.tolist():
            gate, up = (weight(expert, one) @ x[row].double() for one in ("gate", "up"))
            hidden = torch.nn.functional.silu(gate) * up
            expected[row] += weight(expert, "down") @ hidden / 2
    assert (found - expected).norm() < 0.03 * expected.norm()


def test_tokens_are_spread_evenly(experts):
    mixture = Mixture(read_manifest(experts["int4"]), MIXTURE, 4, 2)
    ids, shares = mixture.routes(6)
    assert torch.bincount(ids.flatten()).tolist() == [3, 3, 3, 3]
    assert all(len(set(row)) == 2 for row in ids.tolist())
    assert shares.sum(1).tolist() == [1] * 6


def test_some_experts_stand_for_all(experts):
    manifest = read_manifest(experts["int4"])
    few = Mixture(manifest, MIXTURE, QWEN3_MOE.experts, 2)
    many = Mixture(manifest, MIXTURE, 4 * QWEN3_MOE.experts, 2)
    assert many.bytes == 4 * few.bytes
    x = torch.randn(3, QWEN3_MOE.hidden).bfloat16()
    assert torch.equal(many.bind()(x), few.bind()(x))


def test_a_class_that_chooses_experts_gets_the_same_routes(tmp_path, monkeypatch):
    """vLLM's for 4 bits on Arm, whose op other CPUs lack: it is called, and a stand-in sees how."""
    source = write_quantized(tmp_path / "int4", QWEN3_MOE, "ct", 64, True)
    folder = convert(source, tmp_path / "arm", "-t", "vllm-arm")
    seen = []

    def op(x, ids, weights, *others):
        seen.append((ids, weights))
        return x

    monkeypatch.setattr(torch.ops._C, "dynamic_4bit_int_moe", op, raising=False)
    monkeypatch.setattr(bound_experts, "has_op", lambda op: True)
    monkeypatch.setattr(ArmInt4Experts, "why_not_layer", lambda self, moe: None)
    mixture = Mixture(read_manifest(folder), MIXTURE, QWEN3_MOE.experts, 2)
    mixture.bind()(torch.zeros(6, QWEN3_MOE.hidden, dtype=torch.bfloat16))
    ids, shares = mixture.routes(6)
    assert torch.equal(seen[0][0].sort(1).values, ids.long().sort(1).values)
    assert torch.equal(seen[0][1], shares)


def test_experts_that_cannot_run_are_an_answer(experts, packed, monkeypatch):
    assert "no expert of" in ask_experts(Session(), packed["w4a16"])["message"]
    monkeypatch.setattr(bound_experts, "has_op", lambda op: False)
    assert "needs the op _C::fused_experts_cpu" in ask_experts(Session(), experts["int8"])["message"]
    monkeypatch.undo()
    monkeypatch.setattr(bound_experts, "EXPERT_KERNELS", {})
    assert "has no op for experts" in ask_experts(Session(), experts["int8"])["message"]
