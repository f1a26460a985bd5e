"""The matrix of vLLM's recipes: what it says about runs. The runs themselves are matrix/run."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "matrix"))

import matrix
import report
from engine import Generated
from matrix import same, verdicts
from one_run import STOCK, Run, apart, in_short, run_apart
from recipes import RECIPES

ONE = Generated([[1, 2]], [[-0.5, -1.0]], [[-2.0]])
NEAR = Generated([[1, 2]], [[-0.5, -1.0]], [[-2.25]])
OTHER = Generated([[1, 3]], [[-0.5, -1.0]], [[-2.0]])


def test_every_recipe_is_there_once():
    names = [name for recipe in RECIPES.values() for name in recipe.models]
    assert len(names) == len(set(names)) == 23


def test_a_published_quantization_is_run_once_and_first():
    for recipe in RECIPES.values():
        assert len(set(recipe.forms)) == len(recipe.forms)
        assert recipe.forms[: len(recipe.published)] == recipe.published
        assert set(recipe.forms) <= set(report.FORMS)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (Run(ONE), {"stock": "equal"}),
        (Run(NEAR), {"stock": "the same tokens, logprobs off by 2.5e-01"}),
        (Run(OTHER), {"stock": "other tokens"}),
        (Run([1.0]), {"stock": "other results"}),
        (Run(error="no"), {"alone": "no"}),
    ],
)
def test_verdicts(run, expected):
    assert verdicts(run, {"stock": Run(ONE), "amx": Run(error="refused")}) == expected


def test_without_a_reference_it_only_runs():
    assert verdicts(Run(ONE), {"stock": Run(error="refused")}) == {"alone": "runs"}
    assert not same(Run(error="no"), Run(error="no"))


def test_an_error_in_short():
    assert in_short(ValueError("one\n  two\n")) == "ValueError: one two"
    assert in_short(ValueError("1 validation error for X\n  reason")) == "ValueError: reason"
    assert in_short(AssertionError()) == "AssertionError: without a message"
    assert len(in_short(ValueError("x" * 1000))) == 600


def test_a_process_that_ends_or_hangs_is_a_result():
    import os
    import time

    here = Path(".")
    assert run_apart(here, STOCK, lambda _: os._exit(1), {}, 60).error
    assert "no result" in run_apart(here, STOCK, lambda _: time.sleep(60), {}, 0).error
    assert apart(lambda: 3, 60) == 3


def row(**more):
    return {
        "recipe": "granite", "form": "int8", "mode": "eager", "zentorch": False, "vllm": "0.32.0",
        "errors": {}, "packed": {"stock": "equal"}, "fused": {"stock": "equal"}, "off_float": {},
        "figures": {"source": {"load_seconds": 2, "peak_mib": 9, "anonymous_mib": 1.4}},
    } | more  # fmt: skip


@pytest.mark.parametrize(
    ("packed", "expected"),
    [
        ({"stock": "equal"}, "equal"),
        ({"stock": "other tokens", "amx": "equal"}, "equal to vLLM's path for AMX"),
        ({"amx": "other tokens", "amx_plain": "equal"}, "equal to vLLM's path for AMX"),
        ({"stock": "other tokens"}, "other tokens [1]"),
        ({"alone": "runs"}, "runs"),
        ({"alone": "Unsupported: x: vLLM's op cannot run this layer: why not. Load the source"},
         "refused: why not [4]"),
    ],
)  # fmt: skip
def test_the_verdict_of_a_row(packed, expected):
    assert report.verdict(row(packed=packed), "packed") == expected


def test_with_zentorch_other_reasons_hold():
    for form, reason in (("ct", "other tokens [5]"), ("int8", "other tokens")):
        own = row(form=form, zentorch=True, packed={"stock": "other tokens"})
        assert report.verdict(own, "packed") == reason


def test_a_version_is_the_same_however_it_was_built(monkeypatch):
    monkeypatch.setattr(matrix, "version", lambda name: "0.33.0+cpu")
    assert matrix.vllm_version() == "0.33.0"


def test_what_zentorch_has_no_layout_for_is_packed_for_vllm(tmp_path, monkeypatch):
    targets = []

    def convert(source, out, *options):
        targets.append(options[1])
        return "error: no layout of zentorch takes any module of it" if len(targets) == 1 else ""

    monkeypatch.setattr(matrix, "convert", convert)
    monkeypatch.setattr(matrix, "write_apart", lambda folder, *more: folder)
    folders = matrix.Folders(tmp_path, "granite", "fp8", "zentorch")
    assert folders.packed("packed") == tmp_path / "packed"
    assert folders.packed("fused", "--fuse") == tmp_path / "fused"
    assert targets == ["zentorch", "vllm-cpu", "vllm-cpu"] and folders.target == "vllm-cpu"


def test_a_row_of_another_target_says_so():
    own = row(form="fp8", zentorch=True, target="vllm-cpu", packed={"amx": "equal"})
    assert report.verdict(own, "packed") == "equal to vLLM's path for AMX [6]"
    other = own | {"form": "fp8-channel", "packed": {"stock": "other tokens"}}
    assert report.verdict(other, "packed") == "other tokens [2] [6]"
    assert report.verdict(own | {"target": "zentorch"}, "packed").endswith("AMX")
    assert report.verdict(own | {"zentorch": False}, "packed").endswith("AMX")


def test_a_row_that_vllm_refuses_whatever_the_folder():
    same = row(errors={"stock": "ValueError: no"}, packed={"alone": "ValueError: no"})
    assert report.verdict(same, "packed") == "refused, as the source"


def test_a_row_that_vllm_runs_nowhere():
    nowhere = row(errors={"stock": "no", "amx": "X: y does not support apply_router_weight_on_input=True"},
                  packed={"alone": "runs"})  # fmt: skip
    expected = "runs; vLLM's path for AMX: no weights of the router on inputs"
    assert report.verdict(nowhere, "packed") == expected


def test_the_page(tmp_path, monkeypatch):
    page, results = tmp_path / "page.md", tmp_path / "results.jsonl"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    refused = row(errors={"stock": "NotImplementedError: No Int8 MoE backend supports"})
    feature = {"feature": "lora", "form": "ct", "vllm": "0.32.0", "errors": {},
               "packed": {"stock": "equal"}, "fused": {"stock": "equal"}}  # fmt: skip
    lines = [row(packed={"alone": "old"}), refused, feature]
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(sys, "argv", ["report", str(page), str(results)])
    for _ in range(2):  # written anew, not once more
        assert report.main() == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert text.count("| W8A8 | no int8 experts without AMX | equal | equal |") == 1
    assert "2.00 / – / – | 9 / – / – | 1 / – / – |" in text
    assert "| LoRA on all linear layers | W4A16 | runs | equal | equal |" in text
    assert "Not run: Llama-3.1-8B" in text
    assert [json.loads(line) for line in results.read_text().splitlines()] == [refused, feature]


def test_results_keep_what_is_not_run_again(tmp_path):
    path = tmp_path / "results.jsonl"
    rows = [row(), row(mode="compiled"), row(zentorch=True), row(form="fp8"), row(recipe="llama3")]
    again = row(packed={"stock": "other tokens"})
    report.write(path, [*rows, again])
    assert report.read(path) == [rows[4], rows[3], again, rows[1], rows[2]]
