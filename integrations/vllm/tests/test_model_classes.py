"""Model classes that people serve: tokens and logprobs of the packed folder are vLLM's own."""

import pytest
from conftest import convert
from engine import generate
from model_classes import CLASSES, write_class
from own_path import take_experts

pytestmark = pytest.mark.without_zentorch


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Checkpoints of 4 bits and what vLLM generates from them, made once."""
    root, made = tmp_path_factory.mktemp("classes"), {}

    def source(name):
        if name not in made:
            folder = write_class(root / name, name)
            made[name] = folder, generate(folder)
        return made[name]

    return source


@pytest.mark.parametrize("fuse", [False, True], ids=["apart", "fused"])
@pytest.mark.parametrize("name", CLASSES)
def test_4_bits(name, fuse, sources, tmp_path, standins, monkeypatch):
    take_experts(monkeypatch)
    source, expected = sources(name)
    packed = tmp_path / "packed"
    convert(source, packed, "--target", "vllm-cpu", *(["--fuse"] if fuse else []))
    assert generate(packed) == expected
