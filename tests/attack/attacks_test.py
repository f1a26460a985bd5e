"""Who opens packed folders that lie: `prepack verify`, the plug-in's reader, the Python package, and a loader by hand.

Each attack of attacks.py, and each pair of folders of pairs.py, must fail `verify`, and no reader may take for the model
what is none while `verify` passes it. vLLM itself is held against the same table in the tests of the plug-in.
"""

import json
import os
import pathlib
import shutil
import tempfile
import unittest

import attacks
import decode
import raw
import unpack
from readers import opened_by_package, opened_by_plugin
from tool import run

TOOL = os.environ["PREPACK_TOOL"]
# Attacks that these readers must refuse, as all that is needed for it stands in manifests and headers.
BY_PLUGIN = {
    "fused-order-changed", "fused-order-changed-in-the-manifest", "gate-and-up-exchanged", "bias-beside", "weight-beside",
    "bias-dropped", "tensor-twice-in-the-manifest", "tensor-twice-in-the-header", "group-size-halved-in-numbers",
    "group-size-halved-beside-numbers", "symmetric-is-a-lie-beside-numbers", "tensor-in-hidden-shard",
    "norm-in-hidden-shard", "tensor-in-a-folder-below", "index-without-a-shard", "index-beside-a-single-file",
    "consolidated-beside", "consolidated-beside-and-listed", "offset-float-in-the-header", "offset-float-in-the-manifest",
    "kept-names-a-packed-module", "tensor-of-a-sibling-in-an-entry", "tensor-of-another-module-in-an-entry", "members-behind-the-hash",
    "key-twice-in-the-manifest",
}  # fmt: skip


def meant(folder, source):
    """"the model", "another model", or "refused", by a loader that believes all it finds."""
    try:
        model = decode.decode(source)
    except decode.Unclear:
        return "unclear"
    try:
        return "another model" if unpack.differences(folder, model) else "the model"
    except decode.Unclear:
        return "unclear"
    except (decode.Bad, KeyError, TypeError, ValueError, OSError):
        return "refused"


class Attacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="prepack-attacks-"))
        cls.addClassCleanup(shutil.rmtree, cls.place)
        cls.bases = attacks.Bases(cls.place / "bases", TOOL)
        (cls.place / "bases").mkdir()

    def verify(self, folder, source):
        ran = run("verify", folder, "--source", source, "--engine", "reference", tool=TOOL)
        self.assertEqual(ran.wrong, [])
        return ran

    def test_sound_folders_are_taken_by_all(self):
        for base in attacks.BASES:
            with self.subTest(base=base):
                folder, source, _ = self.bases.get(base)
                self.assertEqual(self.verify(folder, source).code, 0)
                self.assertIsNone(opened_by_plugin(folder))
                self.assertIsNone(opened_by_package(folder))
                self.assertIn(meant(folder, source), ("the model", "unclear"))

    def test_what_is_done_to_folders_leaves_them_sound(self):
        """Opening and sealing one again changes nothing that anybody reads."""
        packed, source, twin = self.bases.get("fused")
        folder = self.place / "sealed-again"
        shutil.copytree(packed, folder)
        attacks.Folder(folder, source, twin).save()
        again = json.loads((folder / raw.MANIFEST).read_bytes())
        before = json.loads((packed / raw.MANIFEST).read_bytes())
        # It has a line of its own for every module only as convert writes it.
        del again["manifest_xxh3_128"], before["manifest_xxh3_128"]
        self.assertEqual(again, before)
        self.assertEqual(self.verify(folder, source).code, 0)

    def test_every_attack_fails_verify_or_is_the_model(self):
        for attack in attacks.ATTACKS:
            with self.subTest(attack=attack.name):
                folder, source = self.bases.attacked(attack, self.place)
                ran = self.verify(folder, source)
                self.assertIn(ran.code, attack.verify, ran.out + ran.err)
                refused = opened_by_plugin(folder)
                if ran.code == 0:
                    self.assertIsNone(refused)
                    self.assertIsNone(opened_by_package(folder))
                    self.assertEqual(meant(folder, source), "the model")
                if attack.name in BY_PLUGIN:
                    self.assertIsNotNone(refused)

    def test_the_table_of_what_the_plug_in_refuses_has_no_other_names(self):
        self.assertLessEqual(BY_PLUGIN, {attack.name for attack in attacks.ATTACKS})


if __name__ == "__main__":
    unittest.main()
