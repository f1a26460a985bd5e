"""`vllm serve` on a packed folder, over HTTP: the tokens of the engine in this process."""

import pytest
from conftest import convert
from engine import NEW_TOKENS, PROMPTS, generate
from serving import complete, served
from tiny_models import LLAMA, write_quantized


@pytest.mark.parametrize("target", ["vllm-cpu", "zentorch"])
def test_completions(tmp_path, standins, target):
    if any(name.startswith(("zentorch::" if target == "zentorch" else "_C::")) for name in standins):
        pytest.skip("a server of its own has the real ops only")
    source = write_quantized(tmp_path / "source", LLAMA, "ct", 32, False)
    packed = convert(source, tmp_path / "packed", "--target", target)
    expected = generate(packed).tokens
    with served(packed, tmp_path / "server.log") as url:
        # One by one, where the engine had them together: the sums in attention may differ.
        tokens = [complete(url, packed, prompt)[0] for prompt in PROMPTS]
    assert [one[0] for one in tokens] == [one[0] for one in expected]
    assert all(len(one) == NEW_TOKENS for one in tokens)
