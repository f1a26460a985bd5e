"""python -m prepack_vllm.record without vLLM, Transformers and torch: arrays are the rows, and stand-ins
the models. What it writes is what `verify` and `tune` take. The real runtimes run in the plug-in's own
tests."""

import hashlib
import json
import pathlib
import sys
import types
import unittest
from unittest import mock

import numpy
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import harness
from harness import CHECKPOINTS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "integrations" / "vllm"))
sys.modules.setdefault("xxhash", types.ModuleType("xxhash"))  # only manifests need it

from prepack_vllm import record, record_with_transformers, record_with_vllm  # noqa: E402
from prepack_vllm.activations import ExpertNames, Modules, Recording, modules_of  # noqa: E402
from prepack_vllm.errors import CannotRunHere, Malformed, Unsupported, UsageError  # noqa: E402

SOURCE = CHECKPOINTS / "ct-w4a16-g128-sym"
LAYER = "model.layers.0"
ATTENTION = [f"{LAYER}.self_attn.{name}_proj" for name in "qkv"]
GATE_UP = [f"{LAYER}.mlp.{name}_proj" for name in ("gate", "up")]


def recording_of(modules, rows=4, expert_rows=2, seed=0, others=()):
    return Recording(Modules(frozenset(modules), frozenset(others)), rows, expert_rows, seed)


def numbered(first, count):
    """Rows that say which they are."""
    return numpy.repeat(numpy.arange(first, first + count, dtype=numpy.float32)[:, None], 3, 1)


class Layer:
    """What is called of torch's modules."""

    def __init__(self):
        self.hooks = []

    def register_forward_pre_hook(self, hook, with_kwargs):
        assert with_kwargs
        self.hooks.append(hook)

    def __call__(self, *arguments, **named):
        for hook in self.hooks:
            hook(self, arguments, named)


class Model:
    def __init__(self, **layers):
        self.layers = {name.replace("__", "."): layer for name, layer in layers.items()}

    def named_modules(self):
        return self.layers.items()


class Sampling(unittest.TestCase):
    def test_few_rows_are_all_kept_in_their_order(self):
        recording = recording_of(["a"], rows=8)
        recording.offer(["a"], numbered(0, 3)[None])  # [1, tokens, K]
        recording.offer(["a"], numbered(3, 2))
        recording.offer(["a"], numbered(5, 0))
        self.assertEqual([row[0] for row in recording.by_module()["a"]], [0, 1, 2, 3, 4])

    def test_of_many_rows_each_has_the_same_chance_however_they_come(self):
        counts = numpy.zeros(20)
        for seed in range(400):
            whole = recording_of(["a"], seed=seed)
            whole.offer(["a"], numbered(0, 20))
            cut = recording_of(["a"], seed=seed)
            for first in range(0, 20, 5):
                cut.offer(["a"], numbered(first, 5))
            kept = [int(row[0]) for row in whole.by_module()["a"]]
            self.assertEqual(kept, [int(row[0]) for row in cut.by_module()["a"]])
            self.assertEqual(kept, sorted(set(kept)))
            counts[kept] += 1
        self.assertEqual(counts.sum(), 4 * 400)
        self.assertLess(abs(counts - 80).max(), 30)  # the deviation of each is 8

    def test_what_is_kept_is_a_copy(self):
        recording = recording_of(["a"])
        x = numbered(7, 1)
        recording.offer(["a"], x)
        x[:] = 0
        self.assertEqual(recording.by_module()["a"][0][0], 7)

    def test_rows_that_are_no_numbers_are_left_out_and_counted(self):
        recording = recording_of(["a"])
        x = numbered(0, 5)
        x[1, 2], x[3, 0] = numpy.nan, -numpy.inf
        recording.offer(["a"], x)
        self.assertEqual([row[0] for row in recording.by_module()["a"]], [0, 2, 4])
        self.assertEqual(recording.not_finite, 2)

    def test_experts_get_fewer_rows_and_shared_experts_do_not(self):
        names = [f"{LAYER}.mlp.experts.3.up_proj", f"{LAYER}.mlp.shared_experts.up_proj"]
        recording = recording_of(names)
        for name in names:
            recording.offer([name], numbered(0, 9))
        self.assertEqual([len(recording.by_module()[name]) for name in names], [2, 4])

    def test_modules_that_nobody_asked_for_and_modules_without_a_row(self):
        recording = recording_of(["a", "b"])
        recording.offer(["a", "c"], numbered(0, 1))
        self.assertEqual(list(recording.by_module()), ["a"])
        self.assertEqual(recording.missing(), ["b"])


class RecordTest(harness.ToolTest):
    def float_model(self):
        folder = self.scratch / "float"
        folder.mkdir()
        tensors = {f"{GATE_UP[0]}.weight": ("F32", [1, 1], b"\0\0\0\0")}
        (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        return folder


class Names(RecordTest):
    def test_quantized_modules_of_checkpoints_of_all_formats(self):
        for name in ("ct-w4a16-g128-sym", "awq-gemm-g128", "gptqmodel-w4-sym-g128", "ct-fp8-block"):
            with self.subTest(name):
                modules = modules_of(CHECKPOINTS / name)
                plan = json.loads(self.run_tool("plan", CHECKPOINTS / name, "-t", "bf16", "--json").stdout)
                expected = {one["module"] for one in plan["modules"]}
                self.assertEqual(modules.quantized, expected)
                self.assertFalse(modules.quantized & modules.others)

    def test_fused_modules_of_a_packed_folder_are_their_members(self):
        packed = self.convert(SOURCE, "vllm-cpu", "--fuse")
        self.assertEqual(modules_of(packed), modules_of(SOURCE))

    def test_folders_without_any(self):
        with self.assertRaisesRegex(Unsupported, "no quantized module.*--for"):
            modules_of(self.float_model())
        with self.assertRaisesRegex(Malformed, "no safetensors"):
            modules_of(self.scratch)
        (self.scratch / "prepack.json").write_text("{}")
        (self.scratch / "a.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
        with self.assertRaisesRegex(Malformed, "no manifest"):
            modules_of(self.scratch)

    def test_experts_of_both_ways_to_name_them_and_of_another_place(self):
        mixture = f"{LAYER}.block_sparse_moe.experts"
        names = ExpertNames([f"{mixture}.{expert}.{name}" for expert in (0, 1) for name in ("w1", "w2", "w3")])
        self.assertEqual(names.of(mixture, "gate_up", 1), [f"{mixture}.1.w1", f"{mixture}.1.w3"])
        self.assertEqual(names.of(f"{LAYER}.mlp.experts", "down", 0), [f"{mixture}.0.w2"])
        self.assertEqual(names.of(f"{LAYER}.mlp.experts", "down", 2), [])
        self.assertEqual(names.of("model.layers.1.mlp.experts", "down", 0), [])
        stacked = ExpertNames([f"{LAYER}.mlp.experts.gate_up_proj.5"])
        self.assertEqual(
            stacked.of(f"{LAYER}.mlp.experts", "gate_up", 5), [f"{LAYER}.mlp.experts.gate_up_proj.5"]
        )


class Hooks(unittest.TestCase):
    def test_transformers_modules_by_their_names(self):
        model = Model(**{ATTENTION[0].replace(".", "__"): Layer(), "lm_head": Layer()})
        recording = recording_of(ATTENTION)
        record_with_transformers.hook_modules(model, recording)
        for layer in model.layers.values():
            layer(numbered(1, 1)[None])
            layer(hidden_states=numbered(2, 1))
        found = recording.by_module()
        self.assertEqual(list(found), ATTENTION[:1])
        self.assertEqual([row[0] for row in found[ATTENTION[0]]], [1, 2])

    def vllm_model(self):
        model = Model()
        model.layers = {f"{LAYER}.self_attn.qkv_proj": Layer(), f"{LAYER}.mlp.gate_up_proj": Layer(),
                        f"{LAYER}.mlp.down_proj": Layer(), f"{LAYER}.mamba.down_proj": Layer()}  # fmt: skip
        model.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
        return model

    def test_layers_that_vllm_fuses_are_recorded_as_the_modules_of_the_checkpoint(self):
        model = self.vllm_model()
        wanted = [*ATTENTION, *GATE_UP, f"{LAYER}.mlp.down_proj"]
        recording = recording_of(wanted, others=[f"{LAYER}.mamba.down_proj"])
        record_with_vllm.hook_model(model, recording)
        for number, layer in enumerate(model.layers.values()):
            layer(numbered(number, 1))
        rows = {name: [int(row[0]) for row in rows] for name, rows in recording.by_module().items()}
        expected = dict.fromkeys(ATTENTION, [0]) | dict.fromkeys(GATE_UP, [1])
        self.assertEqual(rows, expected | {f"{LAYER}.mlp.down_proj": [2]})

    def test_names_that_vllm_changes(self):
        class Mapper:
            def get_rename_mapper(self):
                return self

            def apply_dict(self, names):
                return {self.apply_list([name])[0]: one for name, one in names.items()}

            def apply_list(self, names):
                return [name.removeprefix("model.") for name in names]

        model = Model()
        model.layers = {"layers.0.self_attn.qkv_proj": Layer()}
        model.hf_to_vllm_mapper = Mapper()
        recording = recording_of(ATTENTION)
        record_with_vllm.hook_model(model, recording)
        model.layers["layers.0.self_attn.qkv_proj"](input_=numbered(5, 1))
        self.assertEqual(list(recording.by_module()), sorted(ATTENTION))

    def test_vllm_tells_which_rows_an_expert_reads(self):
        mixture = f"{LAYER}.mlp.experts"
        wanted = [f"{mixture}.{expert}.{name}_proj" for expert in range(3) for name in ("gate", "up", "down")]
        recording = recording_of(wanted)

        class Routed:
            def forward_modular(self, x, topk_ids):
                return x + 1

        class Ids(numpy.ndarray):
            def unique(self):
                return numpy.unique(numpy.asarray(self))

        model = Model()
        routed = Routed()
        model.layers = {f"{mixture}.routed_experts": routed}
        record_with_vllm.hook_model(model, recording)
        ids = numpy.array([[0, 2], [2, 0], [0, 1]]).view(Ids)
        result = routed.forward_modular(x=numbered(10, 3), topk_ids=ids)
        self.assertEqual(result[0, 0], 11)
        rows = {name: [int(row[0]) for row in rows] for name, rows in recording.by_module().items()}
        self.assertEqual(rows[f"{mixture}.1.gate_proj"], [12])
        self.assertEqual(rows[f"{mixture}.2.up_proj"], [10, 11])
        self.assertEqual(recording.missing(), [f"{mixture}.{expert}.down_proj" for expert in range(3)])


class Program(RecordTest):
    def setUp(self):
        super().setUp()
        self.prompts = self.scratch / "prompts.jsonl"
        self.prompts.write_text('{"prompt_token_ids": [3, 1, 4, 1, 5]}\n\n{"prompt_token_ids": [9, 2, 6]}\n')
        self.output = self.scratch / "acts.safetensors"
        self.seen = None
        self.patch(record.importlib.util, "find_spec", lambda name: object())
        self.patch(record, "_save_tensors", self.save)
        self.patch(record, "_run_of", lambda runtime: self.run_model)

    def patch(self, *what):
        patched = mock.patch.object(*what)
        patched.start()
        self.addCleanup(patched.stop)

    @staticmethod
    def save(rows, file, metadata):
        save_file({name: numpy.stack(one) for name, one in rows.items()}, file, metadata=metadata)

    def run_model(self, folder, prompts, recording):
        """Outliers in one channel, as language models have them."""
        self.seen = prompts
        random = numpy.random.default_rng(1)
        for prompt in prompts:
            for module in sorted(recording.wanted):
                x = random.standard_normal((len(prompt), 1536 if "down" in module else 384))
                x[:, 7] *= 30
                recording.offer([module], x.astype(numpy.float32))
        return "stand-in 1.0"

    def json_of(self, *arguments):
        return json.loads(self.run_ok(*arguments, "--json").stdout)

    def record(self, *options, model=SOURCE):
        arguments = [str(model), "--prompts", str(self.prompts), "-o", str(self.output), *options]
        return record.record(record.parse_options(arguments))

    def test_verify_and_tune_take_what_it_writes(self):
        text = self.record("--tokens", "4")
        self.assertRegex(text, r"acts\.safetensors: 7 of 7 modules, 0\.\d MB, from 7 tokens of 2 prompts")
        self.assertEqual(self.seen, [[3, 1, 4, 1], [9, 2, 6]])
        packed = self.convert(SOURCE, "vllm-cpu", "--scheme", "w4a8", "--fuse")
        verified = self.json_of("verify", packed, "--activations", self.output)
        self.assertEqual(verified["levels"]["gemm"]["state"], "passed")
        for module in verified["modules"]:
            inputs = {one["input"]: one for one in module["gemm"]["inputs"]}
            self.assertEqual(inputs["recorded"]["rows"], 7)
        tune = ("tune", SOURCE, "-t", "onednn", "--batch", "1", "--time", "0.1")
        tuned = self.json_of(*tune, "--activations", self.output)
        gaussian = self.json_of(*tune)

        def worst_of(report):
            return min(one["sqnr_db"] for kind in report["kinds"] for one in kind["candidates"])

        self.assertEqual(tuned["activations"], str(self.output))
        self.assertLess(worst_of(tuned), worst_of(gaussian) - 5)

    def test_the_file_says_where_it_comes_from(self):
        self.record("--seed", "3", "--rows", "2", "--runtime", "transformers")
        with safe_open(self.output, "np") as file:
            self.assertEqual(file.metadata(), {
                "made_by": "prepack_vllm.record", "model": str(SOURCE), "revision": "",
                "runtime": "stand-in 1.0", "prompts": "2", "tokens": "8", "rows": "2",
                "expert_rows": "8", "seed": "3",
                "prompts_sha256": hashlib.sha256(self.prompts.read_bytes()).hexdigest(),
            })  # fmt: skip
            self.assertEqual(file.get_tensor(GATE_UP[0]).shape, (2, 384))
        self.assertEqual([path.name for path in self.scratch.glob(".*partial")], [])

    def test_the_same_seed_gives_the_same_file(self):
        self.record()
        first = load_file(self.output)
        self.record()
        numpy.testing.assert_equal(load_file(self.output), first)

    def test_names_of_another_folder(self):
        model = self.float_model()
        with self.assertRaisesRegex(Unsupported, "--for"):
            self.record(model=model)
        self.record("--for", str(SOURCE), model=model)
        with safe_open(self.output, "np") as file:
            self.assertEqual(set(file.keys()), modules_of(SOURCE).quantized)

    def test_prompts_of_text_are_lines(self):
        texts = self.scratch / "prompts.txt"
        texts.write_text("a prompt\n\n  \nanother\n")
        self.assertEqual(record.read_prompts(texts), ["a prompt", "another"])

    def test_files_that_are_no_prompts(self):
        for name, data, message in (
            ("a.jsonl", b'{"prompt": "x"}\n{"text": 1}\n', r"a\.jsonl:2: the line is no prompt"),
            ("b.jsonl", b'{"prompt_token_ids": [1, true]}', "b.jsonl:1: the line is no prompt"),
            ("c.jsonl", b"nonsense", "c.jsonl:1: the line is no JSON"),
            ("d.txt", b"\n \n", "the file has no prompt"),
            ("e.txt", b"\xff\xfe", "no UTF-8"),
        ):
            with self.subTest(name):
                self.prompts = self.scratch / name
                self.prompts.write_bytes(data)
                with self.assertRaisesRegex(Malformed, message):
                    self.record()
        self.assertFalse(self.output.exists())

    def test_what_cannot_be_done_has_an_exit_code(self):
        arguments = [str(SOURCE), "--prompts", str(self.prompts), "-o", str(self.output)]
        with mock.patch("sys.stderr", mock.MagicMock()):
            for output in ("no/acts.safetensors", "acts"):
                output = str(self.scratch / output)
                self.assertEqual(record.main([*arguments[:-1], output]), UsageError.exit_code)
            self.assertEqual(record.main([arguments[0], "--prompts", "nowhere", "-o", str(self.output)]), 4)
            self.assertEqual(record.main([str(self.scratch / "none"), *arguments[1:]]), 4)
            self.run_model = lambda folder, prompts, recording: "stand-in 1.0"
            self.assertEqual(record.main(arguments), CannotRunHere.exit_code)
            with mock.patch.object(record.importlib.util, "find_spec", lambda name: None):
                self.assertEqual(record.main(arguments), CannotRunHere.exit_code)
        with mock.patch("builtins.print") as printed:
            del self.run_model
            self.assertEqual(record.main(arguments), 0)
        self.assertIn("7 of 7 modules", printed.call_args.args[0])

    def test_transformers_cannot_run_packed_folders(self):
        packed = self.convert(SOURCE, "vllm-cpu")
        with self.assertRaisesRegex(Unsupported, "packed folder.*--for"):
            self.record("--runtime", "transformers", model=packed)


if __name__ == "__main__":
    unittest.main()
