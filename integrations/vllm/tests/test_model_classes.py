"""Model classes that people serve: tokens and logprobs of the packed folder are vLLM's own.

What is tested is the table of model classes in the plug-in's README.md.
"""

import re
from pathlib import Path

import pytest
import torch
from class_folders import write_class
from conftest import convert
from engine import generate
from model_classes import CLASSES
from own_path import take_experts, take_fp8_blocks
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.model_executor.models.deepseek_mtp import DeepSeekMTP

from prepack_vllm.errors import Unsupported

pytestmark = pytest.mark.without_zentorch

README = Path(__file__).parents[1] / "README.md"
EQUAL = "equal"
# What vLLM runs no checkpoint of this kind of, and what of the packed folder is compared instead.
WITHOUT_IN_PROJ = "equal to a checkpoint that leaves in_proj as it is"
NEARLY = "runs, near to the weights in bf16"
REFUSED = "refused"
NOT_STARTED = "vLLM does not start it"


def rows_of_table():
    """(class, quantization): result."""
    rows = {}
    for line in README.read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r"\| [^|]+ \| `(\w+)` \| (4 bits|FP8) \| ([^|]+?) \|[^|]*\|", line)
        if match:
            rows[match[1], match[2]] = match[3]
    return rows


ROWS = rows_of_table()


def cases(result):
    return [pytest.param(*row, id="-".join(row)) for row, found in ROWS.items() if found == result]


def test_the_table_names_every_class_and_every_result_is_tested():
    assert {name for name, _ in ROWS} == set(CLASSES)
    assert set(ROWS.values()) == {EQUAL, WITHOUT_IN_PROJ, NEARLY, REFUSED, NOT_STARTED}


@pytest.fixture(autouse=True)
def own_path(monkeypatch):
    take_experts(monkeypatch)
    take_fp8_blocks(monkeypatch)


def run(name, folder, **options):
    # Images would need a processor; the language model is what is packed.
    kinds = CLASSES[name].sees
    no_images = {"limit_mm_per_prompt": dict.fromkeys(kinds, 0)} if kinds else {}
    try:
        return generate(folder, **no_images, **options)
    except Exception:
        cleanup_dist_env_and_memory()  # or the next engine would find the groups of this one
        raise


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Checkpoints and what vLLM generates from them, made once."""
    root, made = tmp_path_factory.mktemp("classes"), {}

    def source(name, bits):
        if (name, bits) not in made:
            form = "fp8" if bits == "FP8" else "ct"
            folder = write_class(root / f"{name}-{form}", name, form)
            made[name, bits] = folder, run(name, folder)
        return made[name, bits]

    return source


def packed(source, folder, *options):
    return convert(source, folder, "--target", "vllm-cpu", *options)


def difference(one, other):
    logprobs = [torch.tensor(sum(found.prompt_logprobs, [])) for found in (one, other)]
    return (logprobs[0] - logprobs[1]).abs().mean()


@pytest.mark.parametrize("fuse", [False, True], ids=["apart", "fused"])
@pytest.mark.parametrize(("name", "bits"), cases(EQUAL))
def test_equal_to_vllms_own_path(name, bits, fuse, sources, tmp_path, standins):
    source, expected = sources(name, bits)
    folder = packed(source, tmp_path / "packed", *(["--fuse"] if fuse else []))
    assert run(name, folder) == expected


@pytest.mark.parametrize("fuse", [False, True], ids=["apart", "fused"])
@pytest.mark.parametrize(("name", "bits"), cases(WITHOUT_IN_PROJ))
def test_what_vllm_refuses_runs_when_it_is_dequantized(name, bits, fuse, tmp_path, standins):
    """vLLM's op of 4 bits takes multiples of 32 output channels, and Mamba's in_proj has others."""
    source = write_class(tmp_path / "source", name)
    with pytest.raises(ValueError, match="not supported by CPUWNA16, .* multiples of 32"):
        run(name, source)
    with pytest.raises(ValueError, match="not supported by CPUWNA16, .* multiples of 32"):
        run(name, packed(source, tmp_path / "kept"))
    options = ["--fallback", "dequantize"] + (["--fuse"] if fuse else [])
    folder = packed(source, tmp_path / "packed", *options)
    rounded = write_class(tmp_path / "rounded", name, rounded=r".*\.in_proj")
    assert run(name, folder) == run(name, rounded)


@pytest.mark.parametrize(("name", "bits"), cases(NOT_STARTED))
def test_what_vllm_does_not_start_fails_alike_from_both_folders(name, bits, tmp_path, standins):
    """It looks for kernels among all modules, and falls over one of numba's, which this class loads."""
    source = write_class(tmp_path / "source", name)
    for folder in (source, packed(source, tmp_path / "packed", "--fuse")):
        with pytest.raises(AttributeError, match="_lib_fn_wrapper"):
            run(name, folder)


@pytest.mark.parametrize(("name", "bits"), cases(NEARLY))
def test_what_vllm_refuses_is_near_to_the_weights(name, bits, tmp_path, standins):
    source = write_class(tmp_path / "source", name)
    with pytest.raises(NotImplementedError, match="does not support apply_router_weight_on_input"):
        run(name, source)
    apart = run(name, packed(source, tmp_path / "apart"))
    assert run(name, packed(source, tmp_path / "fused", "--fuse")) == apart
    weights = write_class(tmp_path / "rounded", name, rounded=".*")
    assert difference(apart, run(name, weights)) < 0.1  # of some 6: the model is a random one


@pytest.mark.parametrize(("name", "bits"), cases(REFUSED))
def test_what_vllm_cannot_run_is_refused_when_it_is_loaded(name, bits, tmp_path, standins):
    source = write_class(tmp_path / "source", name)
    with pytest.raises(AssertionError):  # in vLLM's router, at the first token
        run(name, source)
    with pytest.raises(Unsupported, match="vLLM runs none of its checkpoints on CPUs"):
        run(name, packed(source, tmp_path / "packed"))


@pytest.mark.parametrize("fuse", [False, True], ids=["apart", "fused"])
def test_a_layer_for_speculative_decoding(fuse, sources, tmp_path, standins, monkeypatch):
    """Tokens do not depend on what is proposed, so the proposals are compared, too."""
    source, _ = sources("deepseek_v3_mtp", "4 bits")
    folder = packed(source, tmp_path / "packed", *(["--fuse"] if fuse else []))
    proposals = []
    compute = DeepSeekMTP.compute_logits

    def compute_logits(self, *arguments, **named):
        proposals[-1].append(compute(self, *arguments, **named))
        return proposals[-1][-1]

    monkeypatch.setattr(DeepSeekMTP, "compute_logits", compute_logits)
    found = []
    for one in (source, folder):
        proposals.append([])
        speculation = {"method": "mtp", "num_speculative_tokens": 1}
        found.append(run("deepseek_v3_mtp", one, speculative_config=speculation))
    assert found[0] == found[1]
    assert len(proposals[0]) > 3
    assert all(torch.equal(one, other) for one, other in zip(*proposals, strict=True))


def test_layouts_are_mixed_where_vllm_moves_rows(sources, tmp_path, standins):
    """Llama 4: q and k keep their rows, and their outputs are moved."""
    source, expected = sources("llama4_dense", "4 bits")
    folder = packed(source, tmp_path / "packed", "--scheme", "v_proj=w4a8")
    assert 0 < difference(run("llama4_dense", folder), expected) < 0.1


def test_shared_experts_keep_their_scheme(sources, tmp_path, standins):
    """`experts=w4a8` names shared experts, too; vLLM runs these with activations in bf16."""
    source, expected = sources("deepseek_v3", "4 bits")
    folder = packed(source, tmp_path / "packed", "--scheme", "[.]experts[.]=w4a8")
    assert run("deepseek_v3", folder) == expected
