"""A packed model as the draft model of speculative decoding, against the source as the same."""

import pytest
import torch
from conftest import convert
from engine import generate
from tiny_models import LLAMA, write_quantized
from vllm.model_executor.models.llama import LlamaForCausalLM

pytestmark = pytest.mark.without_zentorch


@pytest.fixture
def computed(monkeypatch):
    """Every logit of the model and of the draft model: the tokens do not depend on proposals."""
    found = []
    compute = LlamaForCausalLM.compute_logits

    def compute_logits(self, *arguments, **named):
        found.append(compute(self, *arguments, **named))
        return found[-1]

    monkeypatch.setattr(LlamaForCausalLM, "compute_logits", compute_logits)
    return found


@pytest.mark.parametrize("fuse", [False, True], ids=["apart", "fused"])
def test_a_packed_draft_model(fuse, tmp_path, standins, computed):
    source = write_quantized(tmp_path / "source", LLAMA, "ct", 32, True)
    options = ["--fuse"] if fuse else []
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu", *options)
    outputs, logits = [], []
    for model, draft in ((source, source), (source, packed), (packed, packed), (packed, source)):
        computed.clear()
        speculation = {"model": str(draft), "method": "draft_model", "num_speculative_tokens": 2}
        outputs.append(generate(model, speculative_config=speculation))
        logits.append(list(computed))
    assert outputs[1:] == outputs[:1] * 3
    assert len(logits[0]) > 3
    for other in logits[1:]:
        assert len(other) == len(logits[0])
        assert all(torch.equal(a, b) for a, b in zip(other, logits[0], strict=True))
