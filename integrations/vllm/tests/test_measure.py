"""Questions of `prepack tune` and their answers: real ops, or the stand-ins of those that lack here."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import convert
from folders import CHECKPOINTS

from prepack_vllm.measure import PROTOCOL, Session, serve

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


def test_copies_take_as_much_memory_as_was_asked_for(packed):
    session = Session()
    prepare(session, packed["w4a16"])
    # A weight of 384 x 1536 nibbles, and 384 x 12 scales in bf16.
    size = 384 * 1536 // 2 + 384 * 12 * 2
    assert len(session._kernels[1]._products) == -(-(1 << 20) // size) == 4


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
    from prepack_vllm.kernels import Wna16

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
