"""A short campaign (campaign.py), of the same mutants in every run, and whether its judges can fail."""

import json
import pathlib
import random
import shutil
import tempfile
import unittest

import campaign
import decode
import mutate
import raw
import seeds
import unpack
from tool import run

ROUNDS = 100


def ways(form):
    """(target, options) that make packed folders of all kinds of the seeds of a form."""
    yield "vllm-cpu", ["--fallback", "dequantize"]
    stores_4_bits = seeds.FORMS[form]["store"] not in (seeds.ct_int8, seeds.ct_fp8)
    yield "vllm-arm", ["--fallback", "dequantize", *["--scheme", "w4a8"] * stores_4_bits]


class Campaign(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="prepack-campaign-"))
        self.addCleanup(shutil.rmtree, self.place)

    def test_no_mutant_breaks_a_rule(self):
        pool = campaign.Pool(self.place)
        verdicts = []
        for seed in range(1, ROUNDS + 1):
            with self.subTest(seed=seed):
                one = campaign.play(seed, pool)
                self.assertEqual(one.wrong, [], f"{one.base.name} {one.target} {one.options}: {one.done}")
                self.assertEqual([text for text in one.odd if "the attacker failed" in text], [])
                verdicts += one.verdicts
        # Of everything there is some: refused and taken, compared and passed.
        for verdict in ("convert 0", "convert 3", "verify 0", "verify 1", "verify 3", "check 0", "check 3", "merge 3", "compared"):
            self.assertIn(verdict, verdicts)

    def test_a_round_is_repeated_by_its_seed(self):
        pool = campaign.Pool(self.place)
        first, second = (campaign.play(7, pool) for _ in range(2))
        self.assertEqual((first.done, first.verdicts), (second.done, second.verdicts))

    def test_seeds_are_sound_and_mean_what_is_packed(self):
        packed = set()
        for form in seeds.FORMS:
            with self.subTest(form=form):
                source = seeds.write_seed(self.place / form, form, 5, shards=2, bias=True)
                self.assertEqual(run("check", source).code, 0)
                for target, options in ways(form):
                    out = self.place / f"{form}-{target}"
                    ran = run("convert", source, "-o", out, "-t", target, "--fuse", *options)
                    self.assertEqual((ran.code, ran.wrong), (0, []))
                    self.assertEqual(unpack.differences(out, decode.decode(source)), [])
                    packed |= {one["layout"] for one in json.loads((out / raw.MANIFEST).read_text())["modules"].values()}
        self.assertEqual([one for one in unpack.LAYOUTS if one not in packed and one.startswith("vllm-arm")], [])

    def test_the_decoders_see_one_bit(self):
        """Of each kind of tensor, in the source and in what is packed."""
        for form in seeds.FORMS:
            source = seeds.write_seed(self.place / f"{form}-bits", form, 5, layers=1)
            model = decode.decode(source)
            for target, options in ways(form):
                out = self.place / f"{form}-{target}"
                run("convert", source, "-o", out, "-t", target, *options)
                self.assertEqual(unpack.differences(out, model), [])
                file = raw.File.read(out / "model.safetensors")
                for entry in file.entries:
                    with self.subTest(form=form, target=target, tensor=entry.name):
                        data = bytearray(file.tensor(entry.name))
                        data[len(data) // 2] ^= 1
                        changed = raw.File.read(out / "model.safetensors")
                        changed.put(entry.name, data)
                        changed.write(out / "model.safetensors")
                        self.assertNotEqual(self.seen(out, model), [])

    def seen(self, out, model):
        try:
            return unpack.differences(out, model)
        except decode.Bad as error:
            return [str(error)]

    def test_every_mutation_changes_something(self):
        for table in (mutate.SOURCE, mutate.PACKED):
            for _, change in table:
                with self.subTest(change=change.__name__):
                    self.assertTrue(any(self.changes(change, random.Random(seed)) for seed in range(20)))

    def changes(self, change, choose):
        place = pathlib.Path(tempfile.mkdtemp(dir=self.place))
        folder, twin = place / "source", place / "twin"
        source = seeds.write_seed(folder, "ct-sym", 1, layers=1, shards=2)
        seeds.write_seed(twin, "ct-sym", 2, layers=1, shards=2)
        (source / raw.MANIFEST).write_text('{"modules": {"a": {"shape": [1, 2]}}}')
        before = {path.name: path.read_bytes() for path in source.iterdir()}
        change(source, choose, [twin])
        return before != {p.name: p.read_bytes() for p in source.iterdir() if p.is_file()}


if __name__ == "__main__":
    unittest.main()
