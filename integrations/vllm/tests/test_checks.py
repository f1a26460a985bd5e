"""What is wrong with a folder is found before a weight is read, and said so."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from conftest import convert
from folders import CHECKPOINTS, DOWN, edit_manifest, edit_tensors, follow_file, write_manifest
from pack import pack_probe

from prepack_vllm import platform
from prepack_vllm.checks import check_folder
from prepack_vllm.errors import CannotRunHere, Malformed, Unsupported
from prepack_vllm.layouts import LAYOUTS
from prepack_vllm.layouts.layout import Packer


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    source = CHECKPOINTS / "ct-w4a16-g128-sym"
    return convert(source, tmp_path_factory.mktemp("packed") / "wna16", "--target", "vllm-cpu")


@pytest.fixture
def folder(packed, tmp_path):
    return shutil.copytree(packed, tmp_path / "folder")


def part(document, name="weight"):
    return document["modules"][DOWN]["parts"][name]


def test_a_good_folder_passes(folder):
    assert len(check_folder(folder).modules) == 7


def test_editing_leaves_a_good_folder_good(folder):
    """Else every test below would pass for another reason."""
    edit_tensors(folder, lambda tensors: None)
    follow_file(folder)
    assert len(check_folder(folder).modules) == 7


def test_no_folder(tmp_path):
    with pytest.raises(Unsupported, match="loaded from a local folder.*Download it first"):
        check_folder(tmp_path / "org/model")


def test_no_manifest(folder):
    (folder / "prepack.json").unlink()
    with pytest.raises(Malformed, match="the manifest is missing"):
        check_folder(folder)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '"x"'])
def test_a_manifest_that_is_no_json_object(folder, text):
    (folder / "prepack.json").write_text(text)
    with pytest.raises(Malformed, match="no JSON"):
        check_folder(folder)


def test_a_manifest_that_is_no_text(folder):
    (folder / "prepack.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(Malformed, match="no UTF-8"):
        check_folder(folder)


def test_a_manifest_that_was_edited(folder):
    path = folder / "prepack.json"
    path.write_text(path.read_text().replace('"group_size": 128', '"group_size": 64', 1))
    with pytest.raises(Malformed, match="changed after it was written"):
        check_folder(folder)


def test_another_version_of_the_manifest(folder):
    edit_manifest(folder, lambda document: document.update(manifest_version=3))
    with pytest.raises(Unsupported, match=r"another version \(found 3, expected 2\)"):
        check_folder(folder)


WRONG_MEMBERS = {
    "no_target": lambda document: document.pop("target"),
    "target_of_another_type": lambda document: document.update(target=1),
    "modules_of_another_type": lambda document: document.update(modules=[]),
    "module_of_another_type": lambda document: document["modules"].update({DOWN: 1}),
    "version_is_a_boolean": lambda document: document.update(manifest_version=True),
    "negative_offset": lambda document: part(document).update(offset=-1),
    "negative_size": lambda document: part(document).update(shape=[-1, 2]),
    "shape_of_three": lambda document: document["modules"][DOWN].update(shape=[1, 2, 3]),
    "shape_with_zero": lambda document: document["modules"][DOWN].update(shape=[0, 2]),
    "group_of_zero": lambda document: document["modules"][DOWN]["numbers"].update(group_size=0),
    "file_in_another_folder": lambda document: part(document).update(file="../x"),
}


@pytest.mark.parametrize("case", WRONG_MEMBERS)
def test_wrong_members_of_the_manifest(folder, case):
    edit_manifest(folder, WRONG_MEMBERS[case])
    with pytest.raises(Malformed):
        check_folder(folder)


def test_a_missing_tensor_is_named(folder):
    edit_tensors(folder, lambda tensors: tensors.pop(f"{DOWN}.weight_scale"))
    follow_file(folder)
    with pytest.raises(Malformed, match=rf"tensor {DOWN}.weight_scale is missing\. Copy"):
        check_folder(folder)


def test_a_tensor_too_many_is_named(folder):
    edit_tensors(folder, lambda tensors: tensors.update(extra=torch.zeros(1)))
    follow_file(folder)
    with pytest.raises(Malformed, match="tensor extra is not in the manifest"):
        check_folder(folder)


def test_another_dtype(folder):
    name = f"{DOWN}.weight_scale"
    edit_tensors(folder, lambda tensors: tensors.update({name: tensors[name].half()}))
    follow_file(folder)
    with pytest.raises(Malformed, match=rf"{name} is not what the manifest says \(found F16"):
        check_folder(folder)


def test_another_shape(folder):
    name = f"{DOWN}.weight_scale"
    edit_tensors(folder, lambda tensors: tensors.update({name: tensors[name][:, :8].clone()}))
    follow_file(folder)
    with pytest.raises(Malformed, match=rf"{name} is not what the manifest says"):
        check_folder(folder)


def test_a_cut_file(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Malformed, match="the file ends inside tensor"):
        check_folder(folder)


@pytest.mark.parametrize("content", [b"", b"\xff" * 16, b"\x02" + bytes(7) + b"[]"])
def test_a_file_that_is_no_safetensors(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(Malformed, match="header"):
        check_folder(folder)


def test_a_malformed_entry_of_a_header(folder):
    text = json.dumps({f"{DOWN}.weight": {"dtype": "I32"}}).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(Malformed, match="the header of tensor .* is malformed"):
        check_folder(folder)


def test_a_missing_file(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(Malformed, match="model.safetensors: the file is missing"):
        check_folder(folder)


def test_a_file_too_many(folder):
    shutil.copy(folder / "model.safetensors", folder / "more.safetensors")
    with pytest.raises(Malformed, match="more.safetensors: the file is not in the manifest"):
        check_folder(folder)


def test_a_tensor_named_twice(folder):
    edit_manifest(folder, lambda document: document["tensors"].append(document["tensors"][0]))
    with pytest.raises(Malformed, match="names a tensor twice"):
        check_folder(folder)


def test_parts_of_another_layout(folder):
    edit_manifest(folder, lambda document: document["modules"][DOWN]["parts"].pop("weight_scale"))
    with pytest.raises(Malformed, match="not the parts of vllm-cpu/wna16"):
        check_folder(folder)


def test_a_part_that_does_not_fit_the_layout(folder):
    edit_manifest(folder, lambda document: part(document).update(shape=[24, 3071]))
    with pytest.raises(Malformed, match=r"part weight does not fit.*expected I32 \[24, 3072\]"):
        check_folder(folder)


def test_a_layout_that_the_plugin_does_not_run(folder):
    change = {"layout": "vllm-cpu/fp8-w8a8-vnni4"}
    edit_manifest(folder, lambda document: document["modules"][DOWN].update(change))
    with pytest.raises(Unsupported, match="does not run the module's layout"):
        check_folder(folder)


def test_a_changed_fingerprint_is_refused_with_the_command(folder):
    def change(document):
        document["layouts"]["vllm-cpu/wna16"]["fingerprint"] = "0" * 32

    edit_manifest(folder, change)
    with pytest.raises(Unsupported, match=r"another version of vllm-cpu/wna16.*prepack convert"):
        check_folder(folder)


def test_a_runtime_that_packs_in_another_way_is_refused(folder, monkeypatch):
    def pack_wrongly(probe):
        parts = dict(pack_probe("vllm-cpu/wna16")(probe))
        parts["weight"] = parts["weight"].flip(0)
        return parts

    layout = replace(LAYOUTS["vllm-cpu/wna16"], packer=Packer(pack_wrongly))
    monkeypatch.setitem(LAYOUTS, "vllm-cpu/wna16", layout)
    with pytest.raises(Unsupported, match="installed runtime packs vllm-cpu/wna16 in another way"):
        check_folder(folder)


def test_the_command_names_the_source_where_it_still_lies(packed):
    manifest = check_folder(packed)
    source = CHECKPOINTS / "ct-w4a16-g128-sym"
    expected = f"prepack convert {source} -o {packed} --target zentorch --force"
    assert expected in manifest.rebuild_hint("zentorch")


def test_the_command_says_source_where_it_is_gone(folder, tmp_path):
    moved = shutil.copytree(folder, tmp_path / "deeper" / "folder")
    assert (
        f"prepack convert SOURCE -o {moved} --target vllm-cpu" in check_folder(moved).rebuild_hint()
    )


def test_a_folder_for_onednn(tmp_path):
    source = CHECKPOINTS / "ct-w4a16-g128-sym"
    folder = convert(source, tmp_path / "onednn", "--target", "onednn")
    with pytest.raises(
        Unsupported, match="for onednn, which vLLM does not read.*--target vllm-cpu"
    ):
        check_folder(folder)


def test_a_folder_for_zentorch_without_it(tmp_path, monkeypatch):
    source = CHECKPOINTS / "ct-w4a16-g128-sym"
    folder = convert(source, tmp_path / "zentorch", "--target", "zentorch")
    monkeypatch.setattr(platform, "zentorch_runs", lambda: False)
    with pytest.raises(CannotRunHere, match="needs zentorch.*--target vllm-cpu"):
        check_folder(folder)


def test_a_cpu_without_the_op(folder, monkeypatch):
    monkeypatch.setattr(platform, "has_op", lambda name: False)
    with pytest.raises(CannotRunHere, match="needs the op _C::cpu_gemm_wna16"):
        check_folder(folder)


def test_every_kind_of_error_has_the_exit_code_of_the_command_line():
    assert [kind.exit_code for kind in (Malformed, Unsupported, CannotRunHere)] == [3, 5, 6]


def test_a_manifest_that_the_tests_write_again_is_accepted(folder):
    """Or every refusal of a changed one could be about the change of its text."""
    before = json.loads((folder / "prepack.json").read_text())
    write_manifest(folder, dict(before))
    check_folder(folder)
    after = json.loads((folder / "prepack.json").read_text())
    assert {**after, "manifest_xxh3_128": ""} == {**before, "manifest_xxh3_128": ""}
