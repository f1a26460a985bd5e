"""Packed folders that lie (tests/attack/attacks.py), and what vLLM makes of them: it refuses them, or computes the
model; where it computes another one, `prepack verify` fails the folder."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from engine import SIZES, shut_down
from loaded import digest, load

from prepack_vllm.kernels import forget_weights
from prepack_vllm.linear import PrepackLinearMethod

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "attack"))
import attacks  # noqa: E402
import decode  # noqa: E402
import unpack  # noqa: E402

pytestmark = pytest.mark.without_zentorch
PROGRAM = os.environ.get("PREPACK", "prepack")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    return attacks.Bases(tmp_path_factory.mktemp("bases"), PROGRAM)


@pytest.fixture(scope="module")
def sound(bases):
    """What vLLM holds after loading the sound folder of a base."""
    made = {}

    def of(name):
        if name not in made:
            model, config = load(bases.get(name)[0])
            made[name] = digest(model), config
        return made[name]

    return of


HAND_MADE = [name for name, base in attacks.BASES.items() if base[0] in attacks.seeds.FORMS]


@pytest.mark.parametrize("base", HAND_MADE)
def test_the_sound_model_computes_with_the_weights_of_its_source(base, bases, standins):
    """Each column of the source, decoded by hand, against what the layer makes of one input."""
    packed, source, _ = bases.get(base)
    weights = decode.decode(source).linears
    model, _ = load(packed)
    checked = 0
    for name, layer in model.named_modules():
        method = getattr(layer, "quant_method", None)
        if not isinstance(method, PrepackLinearMethod):
            continue
        members = [weights[one] for one in unpack.members_of(name)]
        expected = np.concatenate([one.codes * one.scales for one in members])
        found = method.apply(layer, torch.eye(expected.shape[1], dtype=torch.bfloat16))
        forget_weights()
        difference = np.abs(found.float().numpy().T - expected)
        # Kernels round or truncate to bf16 once or twice; FP8's take zeros for small numbers.
        assert (difference <= 2**-6 * np.abs(expected) + 1e-4).all(), name
        checked += 1
    assert checked == 8  # of two layers: qkv, o, gate and up, down


def outcome(folder, expected):
    """("refused", why), "the model" or "another model", and what differs."""
    try:
        model, config = load(folder)
    except Exception as error:  # noqa: BLE001  of whatever kind: nothing is served
        return "refused", f"{type(error).__name__}: {error}"
    found = digest(model), config
    if found == expected:
        return "the model", ""
    tensors = [name for name in expected[0] if found[0].get(name) != expected[0][name]]
    values = [key for key in expected[1] if config.get(key) != expected[1][key]]
    return "another model", f"{tensors} {values} {sorted(set(found[0]) - set(expected[0]))}"


@pytest.mark.parametrize("attack", attacks.ATTACKS, ids=lambda attack: attack.name)
def test_an_attacked_folder_is_refused_or_the_model_or_fails_verify(
    attack, bases, sound, standins, tmp_path
):
    folder, source = bases.attacked(attack, tmp_path)
    command = [PROGRAM, "verify", folder, "--source", source, "--engine", "reference"]
    verify = subprocess.run(command, capture_output=True, check=False).returncode
    found, why = outcome(folder, sound(attack.base))
    print(f"\n{attack.name}: vLLM {found}, verify {verify}: {why}")
    assert verify in attack.verify
    assert verify != 0 or found == "the model"
    assert found == attack.vllm, why


def tokens_of(folder):
    """What an engine makes of it: tokens and their logprobs."""
    from vllm import LLM, SamplingParams

    options = {"enforce_eager": True, "seed": 0, "disable_log_stats": True} | SIZES
    llm = LLM(str(folder), skip_tokenizer_init=True, **options)
    try:
        asked = SamplingParams(
            temperature=0, max_tokens=6, logprobs=1, ignore_eos=True, detokenize=False
        )
        [answer] = llm.generate([{"prompt_token_ids": [3, 7, 11, 5]}], asked, use_tqdm=False)
        [output] = answer.outputs
        pairs = zip(output.logprobs, output.token_ids, strict=True)
        return list(output.token_ids), [entry[token].logprob for entry, token in pairs]
    finally:
        shut_down(llm)


def test_an_engine_computes_the_same_with_a_folder_that_is_sound(bases, standins, tmp_path):
    attack = next(one for one in attacks.ATTACKS if one.verify == (0,))
    folder, _ = bases.attacked(attack, tmp_path)
    assert tokens_of(folder) == tokens_of(bases.get(attack.base)[0])


@pytest.mark.parametrize("name", ["fused-order-changed", "norm-in-hidden-shard"])
def test_an_engine_does_not_start_with_a_folder_that_lies(name, bases, standins, tmp_path):
    attack = next(one for one in attacks.ATTACKS if one.name == name)
    folder, _ = bases.attacked(attack, tmp_path)
    with pytest.raises(Exception, match="vLLM"):
        tokens_of(folder)
