"""The probe modules, and what packs them."""

import platform

import pytest
from pack import PACK, pack_probe

from prepack_vllm.fingerprints import fingerprint
from prepack_vllm.layouts import LAYOUTS

NOTHING_TO_PACK = (
    "vllm-cpu/int8-plain",
    "vllm-arm/int8-plain",
    "plain/bf16",
    "plain/bf16-conv1d",
    "zentorch/int8",
)
# Those of the other kind of CPU have their packers there.
HERE = [
    layout
    for layout in LAYOUTS
    if not layout.startswith("vllm-cpu/" if platform.machine() == "aarch64" else "vllm-arm/")
]


def test_every_layout_can_be_packed_here():
    assert set(PACK) == set(LAYOUTS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_closed_form_has_the_fingerprint_of_the_table(layout):
    assert fingerprint(LAYOUTS[layout], pack_probe(layout)) == LAYOUTS[layout].fingerprint


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_moved_code_changes_the_fingerprint(layout):
    pack = pack_probe(layout)

    def pack_wrongly(probe):
        parts = dict(pack(probe))
        parts["weight"] = parts["weight"].flip(0)
        return parts

    assert fingerprint(LAYOUTS[layout], pack_wrongly) != LAYOUTS[layout].fingerprint


@pytest.mark.parametrize("layout", HERE)
def test_what_the_runtime_packs_has_that_fingerprint_too(layout, standins):
    packer = LAYOUTS[layout].packer
    runs = packer is not None and packer.runs()
    assert runs or layout in NOTHING_TO_PACK
    assert not runs or fingerprint(LAYOUTS[layout], packer.pack) == LAYOUTS[layout].fingerprint
