"""The header of the test run says which ops are real; tests that multiply ask for `standins`.

Where vLLM runs zentorch by itself, its own path of most checkpoints is that of zentorch: tests that
compare with another are marked `without_zentorch`, and run where zentorch is hidden (run_tests).
"""

import os
import subprocess
from pathlib import Path

import pytest

# One process for vLLM's engine and the tests, unless a test wants several.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def _install() -> list[str]:
    from prepack_vllm.platform import load_ops

    load_ops()
    import install_standins

    return install_standins.install()


_STAND_INS = _install()


def pytest_configure(config):
    config.addinivalue_line("markers", "without_zentorch: compares with vLLM's path of plain CPUs")


def pytest_collection_modifyitems(items):
    from prepack_vllm.platform import zentorch_runs

    if not zentorch_runs():
        return
    for item in items:
        if item.get_closest_marker("without_zentorch"):
            item.add_marker(pytest.mark.skip("vLLM runs zentorch here"))


def pytest_report_header():
    if not _STAND_INS:
        return "ops: all are the real ones of vLLM and zentorch"
    return "ops that this CPU or installation lacks; stand-ins run for: " + ", ".join(_STAND_INS)


@pytest.fixture(autouse=True)
def _forget_weights():
    """Those of the test before: its addresses are used again."""
    from prepack_vllm.kernels import forget_weights

    forget_weights()


@pytest.fixture(scope="session")
def standins() -> frozenset[str]:
    """The names of ops that are stand-ins here."""
    return frozenset(_STAND_INS)


def convert(source: Path, out: Path, *options: str) -> Path:
    program = os.environ.get("PREPACK", "prepack")
    command = [program, "convert", str(source), "-o", str(out), "--no-flush", "-q", *options]
    subprocess.run(command, check=True)
    return out
