"""Time as an enemy: a source that is replaced by another model, whatever its files' times say; clocks that
are wrong; parts that were made of different models."""

import datetime
import json
import os
import random
import shutil
import unittest

import harness
from harness import CHECKPOINTS, manifest, part_name, read_tensors

SOURCE = CHECKPOINTS / "ct-w4a16-g32-asym"
ALL_ALIKE = datetime.datetime(2000, 1, 1).timestamp()  # as image layers have it
WHEN = {"alike": ALL_ALIKE, "1970": 1, "2100": datetime.datetime(2100, 1, 1).timestamp()}


def set_times(folder, seconds):
    for path in [*folder.iterdir(), folder]:
        os.utime(path, (seconds, seconds))


def places(path):
    """tensor → where its bytes begin, of tensors that may hold any numbers."""
    header, start = harness.read_header(path)
    return {
        name: start + info["data_offsets"][0]
        for name, info in header.items()
        if not name.endswith("_shape")
    }


class ReplacedSource(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.source, self.out = self.scratch / "source", self.scratch / "out"
        shutil.copytree(SOURCE, self.source)
        (self.source / "chat_template.jinja").write_text("{{ messages }}")
        set_times(self.source, ALL_ALIKE)
        self.shard = self.source / "model.safetensors"
        self.places = places(self.shard)
        self.random = random.Random(harness.SEED or 1)

    def replace(self, tensors, seconds=ALL_ALIKE):
        """Another model of the same headers: it differs in the first byte of these tensors."""
        for tensor in tensors:
            harness.flip(self.shard, self.places[tensor], 1)
        set_times(self.source, seconds)

    def args(self, *options):
        return ("convert", self.source, "-o", self.out, "-t", "vllm-cpu", *options)

    def assert_another(self, texts=(), options=()):
        before = self.contents()
        self.assert_fails(
            2, ["another source, or a source that has changed", *texts], *self.args("--resume", *options)
        )
        self.assertEqual(self.contents(), before)  # nothing was destroyed

    def contents(self):
        """All but the side files of an unfinished output, which every run takes anew."""
        hidden = ".out.prepack-partial/"
        return {
            name: content
            for name, content in harness.contents(self.scratch).items()
            if not name.startswith(hidden) or name.endswith(".safetensors")
        }


class Complete(ReplacedSource):
    def assert_complete(self):
        self.assertIn("is complete already", self.run_ok(*self.args("--resume")).stdout)

    def test_no_time_makes_it_another_source_and_none_the_same(self):
        self.run_ok(*self.args())
        for name, seconds in WHEN.items():
            for made in WHEN.values():
                with self.subTest(source=name, output=made):
                    set_times(self.out, made)
                    set_times(self.source, seconds)
                    for _ in range(2):
                        self.assert_complete()
                    some = self.random.choice(list(self.places))
                    self.replace([some], seconds)
                    self.assert_another(["weights with the fingerprint", "--force"])
                    self.replace([some], seconds)
                    self.assert_complete()

    def test_each_tensor_counts(self):
        self.run_ok(*self.args())
        for tensor in self.places:
            with self.subTest(tensor=tensor):
                self.replace([tensor])
                self.assert_another()
                self.replace([tensor])
        self.assert_complete()

    def test_side_files_count(self):
        self.run_ok(*self.args())
        template, added = self.source / "chat_template.jinja", self.source / "added_tokens.json"
        text = template.read_text()
        template.write_text(text.replace("messages", "massages"))
        set_times(self.source, ALL_ALIKE)
        self.assert_another(["chat_template.jinja with the hash", "--force"])
        template.unlink()
        self.assert_another(["chat_template.jinja with the hash", "expected no chat_template.jinja"])
        template.write_text(text)
        added.write_text("{}")
        self.assert_another(["found no added_tokens.json", "expected added_tokens.json with the hash"])
        added.unlink()
        self.assert_complete()
        self.run_ok(*self.args("--force"))

    def test_the_quantizers_own_config_counts(self):
        shutil.rmtree(self.source)
        shutil.copytree(CHECKPOINTS / "gptqmodel-w4-sym-g128", self.source)
        config = json.loads((self.source / "config.json").read_text())["quantization_config"]
        copy = self.source / "quantize_config.json"
        copy.write_text(json.dumps(config))
        self.run_ok(*self.args())
        copy.write_text(json.dumps({**config, "note": 1}))
        self.assert_another()


class Interrupted(ReplacedSource):
    """All but the last module is finished when the run ends."""

    def setUp(self):
        super().setUp()
        scales = [name for name in self.places if name.endswith(".weight_scale")]
        self.last = max(scales, key=self.places.get)
        sound = self.shard.read_bytes()
        at = self.places[self.last]
        self.shard.write_bytes(sound[:at] + b"\xff\x7f" + sound[at + 2 :])  # no number
        self.assert_fails(3, ["weight_scale"], *self.args("--resume", "--jobs", 1))
        self.shard.write_bytes(sound)
        set_times(self.source, ALL_ALIKE)
        lines = (self.scratch / ".out.prepack-journal").read_text().splitlines()
        units = [json.loads(line[: line.rindex(" ")]) for line in lines[1:]]
        names = sorted(read_tensors(self.source))
        self.finished = {names[number] for unit in units for number in unit["tensors"]}
        self.assertGreater(len(self.finished), 5)
        self.assertLess(len(self.finished), len(names))

    def assert_goes_on(self):
        report = json.loads(self.run_ok(*self.args("--resume", "--json")).stdout)
        self.assertGreater(report["resumed_units"], 2)
        fresh = self.scratch / "fresh"
        self.run_ok("convert", self.source, "-o", fresh, "-t", "vllm-cpu")
        self.assertEqual(harness.contents(self.out), harness.contents(fresh))

    def test_what_is_finished_must_be_of_this_source(self):
        for tensor in sorted(self.finished & set(self.places)):
            with self.subTest(tensor=tensor):
                self.replace([tensor])
                self.assert_another([f"tensor {tensor} with the hash", "without --resume"])
                self.replace([tensor])
        self.assert_goes_on()

    def test_what_is_not_finished_is_made_of_what_is_there_now(self):
        self.replace([self.last])
        self.assert_goes_on()

    def test_times_do_not_matter(self):
        set_times(self.source, WHEN["2100"])
        self.assert_goes_on()

    def test_side_files_are_those_of_now(self):
        (self.source / "chat_template.jinja").write_text("{{ massages }}")
        self.assert_goes_on()

    def test_a_fresh_run_takes_the_new_model(self):
        self.replace(self.finished & set(self.places))
        self.run_ok(*self.args())
        self.run_ok("verify", self.out, "--source", self.source, "-q")


class OfParts(ReplacedSource):
    def make(self, index, count, *options):
        self.run_ok(*self.args("--part", f"{index}/{count}", *options))

    def used(self, index, count):
        record = json.loads((part_name(self.out, index, count) / "prepack-part.json").read_text())
        return sorted(set(record["source_tensors"]) & set(self.places))

    def assert_not_merged(self, code, texts):
        before = harness.contents(self.scratch)
        self.assert_fails(code, texts, "merge", self.out)
        self.assertEqual(harness.contents(self.scratch), before)

    def test_parts_of_two_models_do_not_merge(self):
        for count in (2, 3, 4, 5, 7):
            for index in range(1, count + 1):
                self.make(index, count)
            used = {i: self.used(i, count) for i in range(1, count + 1)}
            used = {i: names for i, names in used.items() if names}
            one, two = self.random.sample(sorted(used), 2)
            for first, others in ((one, [two]), (two, [i for i in used if i != two])):
                # The models differ in two tensors: one of part `first`, one of another part.
                tensors = [self.random.choice(used[first]), self.random.choice(used[others[0]])]
                self.replace(tensors)
                for index in others:
                    self.make(index, count, "--force")
                with self.subTest(parts=count, new=others, tensors=tensors):
                    self.assert_not_merged(3, ["another part was made from another source"])
                self.replace(tensors)
                for index in others:
                    self.make(index, count, "--force")
            self.run_ok("merge", self.out)
            self.run_ok("verify", self.out, "--source", self.source, "-q")
            shutil.rmtree(self.out)

    def test_side_files_are_those_of_one_model(self):
        self.make(1, 2)
        (self.source / "chat_template.jinja").write_text("{{ massages }}")
        self.make(2, 2)
        self.assert_not_merged(2, ["part-00002-of-00002", "chat_template.jinja with the hash"])
        self.assert_another(["chat_template.jinja with the hash"], ("--part", "1/2"))
        self.make(1, 2, "--force")
        self.run_ok("merge", self.out)
        self.assertEqual((self.out / "chat_template.jinja").read_text(), "{{ massages }}")

    def test_side_files_of_a_part_stay_as_they_were_taken(self):
        self.make(1, 2)
        self.make(2, 2)
        (part_name(self.out, 1, 2) / "chat_template.jinja").write_text("{{ massages }}")
        self.assert_not_merged(2, ["part-00001-of-00002", "chat_template.jinja with the hash"])

    def test_a_part_is_complete_only_for_its_source(self):
        self.make(1, 2)
        set_times(self.source, WHEN["2100"])
        resumed = self.run_ok(*self.args("--part", "1/2", "--resume"))
        self.assertIn("is complete already", resumed.stdout)
        for tensor in self.places:  # also of the tensors that part 1 has only read
            self.replace([tensor])
            self.assert_another([f"tensor {tensor}", "--force"], ("--part", "1/2"))
            self.replace([tensor])

    def test_each_part_reads_a_part_of_the_source_only(self):
        count = 25
        for index in range(1, count + 1):
            self.make(index, count)
        tensors = read_tensors(self.source)
        size = {name: len(data) for name, (_, _, data) in tensors.items()}
        seen = []
        for index in range(1, count + 1):
            record = json.loads(
                (part_name(self.out, index, count) / "prepack-part.json").read_text()
            )
            seen.append(set(record["source_tensors"]) | set(record["witnessed_tensors"]))
        # A tensor is never cut, and these are few and large.
        largest = max(size.values())
        for names in seen:
            self.assertLess(sum(map(size.get, names)), sum(size.values()) * 9 / 25 + 10 * largest)
        for one in tensors:
            for two in tensors:
                self.assertTrue(any({one, two} <= names for names in seen), (one, two))
        self.run_ok("merge", self.out)
        self.assertEqual(manifest(self.out)["source"]["fingerprint"], self.fingerprint())

    def fingerprint(self):
        fresh = self.scratch / "fresh"
        self.run_ok("convert", self.source, "-o", fresh, "-t", "vllm-cpu")
        return manifest(fresh)["source"]["fingerprint"]


if __name__ == "__main__":
    unittest.main()
