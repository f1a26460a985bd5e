"""Experts in MXFP4 in whole engines, against vLLM's own path: gpt-oss, and models with SiLU."""

import pytest
from conftest import convert
from engine import generate
from expert_stacks import assert_same_experts
from gpt_oss import write_gpt_oss
from mxfp4 import write_mxfp4
from own_path import OWN_PATH_VARIABLE, take_mxfp4_experts
from tiny_models import QWEN3_MOE


@pytest.fixture
def own_path(monkeypatch):
    monkeypatch.setenv(OWN_PATH_VARIABLE, "mxfp4")  # for the processes of further ranks
    take_mxfp4_experts(monkeypatch.setattr)


@pytest.fixture
def gpt_oss(tmp_path):
    source = write_gpt_oss(tmp_path / "source")
    return source, convert(source, tmp_path / "packed", "--target", "vllm-cpu")


def test_gpt_oss(gpt_oss, standins, own_path):
    source, packed = gpt_oss
    assert_same_experts(packed, source)


def test_gpt_oss_compiled(gpt_oss, standins, own_path):
    source, packed = gpt_oss
    assert generate(packed, enforce_eager=False) == generate(source, enforce_eager=False)


def test_gpt_oss_on_two_ranks(gpt_oss, own_path, monkeypatch):
    source, packed = gpt_oss
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    assert generate(packed, tensor_parallel_size=2) == generate(source, tensor_parallel_size=2)


@pytest.mark.parametrize("dialect", ["ct", "quark"])
def test_gate_and_up_apart(dialect, tmp_path, standins, own_path):
    """vLLM's CPU backend has no method for these dialects; the reference holds the same weights in
    one that it has."""
    source = write_mxfp4(tmp_path / "source", QWEN3_MOE, dialect)
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu")
    assert_same_experts(packed, write_mxfp4(tmp_path / "reference", QWEN3_MOE, "vllm"))
