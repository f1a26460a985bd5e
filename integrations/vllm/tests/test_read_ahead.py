"""Reading the files of a folder ahead."""

import os
from types import SimpleNamespace

import pytest

from prepack_vllm import read_ahead
from prepack_vllm.errors import Malformed

MIB = 1 << 20


def asked_for(monkeypatch, folder, names):
    """(offset, bytes) that the system is asked for, until the thread ends."""
    asked = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *range: asked.append(range))
    entries = [SimpleNamespace(file=name) for name in names]
    manifest = SimpleNamespace(folder=folder, all_tensors=lambda: entries)
    read_ahead.begin(manifest).join(timeout=60)
    return asked


def test_files_are_read_in_order_once(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(bytes(20 * MIB))
    (tmp_path / "b").write_bytes(bytes(100))
    wanted = os.POSIX_FADV_WILLNEED
    assert asked_for(monkeypatch, tmp_path, ["b", "a", "b", "a"]) == [
        (0, 16 * MIB, wanted), (16 * MIB, 16 * MIB, wanted), (0, 16 * MIB, wanted),
    ]  # fmt: skip


def test_a_missing_file_is_for_others_to_report(tmp_path, monkeypatch):
    (tmp_path / "b").write_bytes(bytes(100))
    assert asked_for(monkeypatch, tmp_path, ["a", "b"]) == []


@pytest.mark.parametrize(("value", "wanted"), [("", False), ("0", False), ("1", True)])
def test_it_is_asked_for(value, wanted, monkeypatch):
    monkeypatch.setenv(read_ahead.VARIABLE, value)
    assert read_ahead.is_wanted() is wanted


def test_another_value_is_refused(monkeypatch):
    monkeypatch.setenv(read_ahead.VARIABLE, "yes")
    with pytest.raises(Malformed, match="PREPACK_VLLM_READ_AHEAD: unknown value .found yes"):
        read_ahead.is_wanted()
