"""`--fuse` of experts: those of a layer packed as one tensor per part, as the runtimes' ops read them."""

import copy
import json
import pathlib
import shutil
import sys
import unittest

import harness
import numpy
from harness import CHECKPOINTS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
import raw  # noqa: E402

INT4 = "language_model.model.layers.1.mlp.experts"  # of ct-nested-moe
# Checkpoint, target, options and layout; experts by themselves and stored stacked, of every kind.
STACKED = [
    ("ct-nested-moe", "vllm-cpu", [], "vllm-cpu/int4-w4a8"),
    ("ct-nested-moe", "zentorch", [], "zentorch/da8w4"),
    ("hf-fp8-stacked-scales", "vllm-cpu", [], "vllm-cpu/fp8-vnni"),
    ("fp8-deepseek-v4", "vllm-cpu", [], "vllm-cpu/mxfp4"),
    ("gpt-oss-mxfp4", "vllm-cpu", [], "vllm-cpu/mxfp4"),
]


def int8_experts(folder, experts=3, n=64, k=96):
    """A checkpoint whose experts are int8 with a scale per channel, as compressed-tensors stores them."""
    shutil.copytree(CHECKPOINTS / "ct-w8a8-dynamic", folder)
    random = numpy.random.default_rng(11)
    tensors = harness.read_tensors(folder)
    for expert in range(experts):
        for name, (rows, columns) in {"gate_proj": (n, k), "up_proj": (n, k), "down_proj": (k, n)}.items():
            module = f"model.layers.0.mlp.experts.{expert}.{name}"
            codes = random.integers(-127, 128, (rows, columns), numpy.int8)
            scales = random.integers(0x3B00, 0x3C80, rows, numpy.uint16)
            tensors[f"{module}.weight"] = ("I8", [rows, columns], codes.tobytes())
            tensors[f"{module}.weight_scale"] = ("BF16", [rows, 1], scales.tobytes())
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
    return folder


class Stacks(harness.ToolTest):
    def assert_stacks(self, source, target, options, layout):
        """What is stacked is what is packed one by one, one after another; verify proves it."""
        plain = self.convert(source, target, *options, name="plain")
        out = self.convert(source, target, *options, "--fuse", name="stacked")
        self.checked_json((out / "prepack.json").read_text(), "manifest")
        pieces, packed = harness.read_tensors(plain), harness.read_tensors(out)
        single = harness.manifest(plain)["modules"]
        stacks = {n: m for n, m in harness.manifest(out)["modules"].items() if "experts" in m}
        self.assertTrue(stacks)
        for name, module in stacks.items():
            self.assertEqual(module["layout"], layout)
            members = [one["module"] for one in module["fused"]]
            self.assertEqual(sum(single[one]["shape"][0] for one in members), module["shape"][0])
            for part, record in module["parts"].items():
                dtype, shape, data = packed[f"{name}.{part}"]
                self.assertEqual(shape, record["shape"])
                self.assertEqual(shape[0], module["experts"])
                self.assertEqual(data, self.joined(pieces, members, part, module["experts"]), f"{name}.{part}")
            for one in members:
                self.assertFalse([tensor for tensor in packed if tensor.startswith(f"{one}.")])
        report = self.checked_json(self.run_ok("verify", out, "--source", source, "--json").stdout, "verify")
        self.assertEqual(report["verdict"], "passed")
        self.assertEqual(
            [level["state"] for level in report["levels"].values() if level.get("asked", True)][:3], ["passed"] * 3
        )
        shutil.rmtree(plain)
        return out

    def joined(self, pieces, members, part, experts):
        """A part of the experts one by one: of each its modules, along N, which is the last axis of [G, N]."""
        per_expert = len(members) // experts
        data = b""
        for first in range(0, len(members), per_expert):
            entries = [pieces[f"{one}.{part}"] for one in members[first : first + per_expert]]
            width = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4}.get(entries[0][0], 1)
            arrays = [numpy.frombuffer(own, numpy.uint8).reshape(*shape, width) for _, shape, own in entries]
            by_groups = part == "weight_scale" and arrays[0].ndim == 3 and entries[0][0] == "BF16"
            data += numpy.concatenate(arrays, 1 if by_groups else 0).tobytes()
        return data

    def test_experts_are_stacked_as_they_are_packed(self):
        for name, target, options, layout in STACKED:
            with self.subTest(checkpoint=name, target=target):
                out = self.assert_stacks(CHECKPOINTS / name, target, options, layout)
                shutil.rmtree(out)

    def test_int8_experts_are_stacked(self):
        source = int8_experts(self.scratch / "int8")
        for target, layout in (("vllm-cpu", "vllm-cpu/int8-vnni"), ("zentorch", "zentorch/int8")):
            out = self.assert_stacks(source, target, [], layout)
            shutil.rmtree(out)

    def test_a_weight_of_an_expert_is_found_in_the_stack(self):
        out = self.convert(CHECKPOINTS / "ct-nested-moe", "vllm-cpu", "--fuse")
        found = self.checked_json(
            self.run_ok("inspect", out, "--find", f"{INT4}.3.up_proj", 5, 7, "--json").stdout, "inspect_find"
        )
        self.assertEqual(found["source"]["weight"], found["packed"]["weight"])
        text = self.run_ok("inspect", out, "--module", f"{INT4}.3.up_proj").stdout
        self.assertIn("output channels 224 to 255 of", text)

    def test_experts_that_were_exchanged_are_found(self):
        source = CHECKPOINTS / "ct-nested-moe"
        out = self.convert(source, "vllm-cpu", "--fuse")
        path = out / "model.safetensors"
        header, start = harness.read_header(path)
        data = bytearray(path.read_bytes())
        for part in ("weight", "weight_scale", "weight_zero_point"):
            begin, end = (start + offset for offset in header[f"{INT4}.down_proj.{part}"]["data_offsets"])
            size = (end - begin) // 4
            first, second = data[begin : begin + size], data[begin + size : begin + 2 * size]
            data[begin : begin + 2 * size] = second + first
        path.write_bytes(data)
        raw.seal(out)  # every hash fits again
        result = self.run_tool("verify", out, "--source", source, "--json")
        self.assertEqual(result.returncode, 1, result.stderr)
        report = self.checked_json(result.stdout, "verify")
        for level in ("exactness", "gemm"):
            self.assertEqual(report["levels"][level]["state"], "failed", level)
        problems = [one["message"] for one in report["levels"]["gemm"]["problems"]]
        for expert in (0, 1):
            self.assertTrue(any(one.startswith(f"expert {expert}: ") for one in problems), problems)
        self.assertFalse(any(one.startswith("expert 2: ") for one in problems), problems)

    def test_parts_of_a_stacked_conversion_merge(self):
        source = CHECKPOINTS / "gpt-oss-mxfp4"
        out = self.scratch / "merged"
        for part in (1, 2, 3):
            self.run_ok("convert", source, "-o", out, "-t", "vllm-cpu", "--fuse", "--part", f"{part}/3")
        self.run_ok("merge", out)
        whole = self.convert(source, "vllm-cpu", "--fuse", name="whole")
        self.assertEqual(harness.hashes(out), harness.hashes(whole))
        stacks = harness.manifest(whole)["modules"]
        self.assertEqual({n: m["experts"] for n, m in stacks.items()}, dict.fromkeys(stacks, 4))
        self.assertEqual(
            {n: m["experts"] for n, m in harness.manifest(out)["modules"].items()}, dict.fromkeys(stacks, 4)
        )
        self.run_ok("verify", out, "--source", source)

    def test_bytes_do_not_depend_on_threads(self):
        source = CHECKPOINTS / "gpt-oss-mxfp4"
        one, many = (self.convert(source, "vllm-cpu", "--fuse", "-j", n, name=f"with{n}") for n in (1, 5))
        self.assertEqual((one / "model.safetensors").read_bytes(), (many / "model.safetensors").read_bytes())

    def test_what_cannot_be_stacked_stays_apart(self):
        def without_one(tensors):
            for part in ("weight", "weight_scale"):
                del tensors[f"model.layers.0.mlp.experts.1.up_proj.{part}"]

        def another_size(tensors):
            module = "model.layers.0.mlp.experts.1.up_proj"
            _, (_, k), data = tensors[f"{module}.weight"]
            tensors[f"{module}.weight"] = ("I8", [32, k], data[: 32 * k])
            dtype, _, scales = tensors[f"{module}.weight_scale"]
            tensors[f"{module}.weight_scale"] = (dtype, [32, 1], scales[:64])

        def one_bias(tensors):
            n = tensors["model.layers.0.mlp.experts.1.up_proj.weight"][1][0]
            tensors["model.layers.0.mlp.experts.1.up_proj.bias"] = ("BF16", [n], bytes(2 * n))

        mixture = "model.layers.0.mlp.experts"
        for change, why in (
            (without_one, "a module of expert 1 is missing or not quantized"),
            (another_size, "expert 1 has 32 output channels where expert 0 has 64"),
            (one_bias, "only some of the layers have a bias"),
        ):
            with self.subTest(why=why):
                source = int8_experts(self.scratch / "source")
                tensors = harness.read_tensors(source)
                change(tensors)
                (source / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
                result = self.run_ok("plan", source, "-t", "vllm-cpu", "--fuse", "--json")
                plan = self.checked_json(result.stdout, "plan")
                self.assertEqual(
                    {name: text for name, text in plan["apart"].items() if mixture in name},
                    {
                        f"{mixture}.gate_up_proj": why,
                        f"{mixture}.down_proj": f"gate_up_proj of the same experts stays apart: {why}",
                    },
                )
                packed = {module["module"] for module in plan["modules"]}
                self.assertNotIn(f"{mixture}.down_proj", packed)
                self.assertIn(f"{mixture}.2.down_proj", packed)
                shutil.rmtree(source)

    def test_a_single_expert_is_no_stack(self):
        source = int8_experts(self.scratch / "source", experts=1)
        plan = json.loads(self.run_ok("plan", source, "-t", "vllm-cpu", "--fuse", "--json").stdout)
        why = {name: text for name, text in plan["apart"].items() if "experts" in name}
        self.assertEqual(len(why), 2)
        self.assertIn("there is one expert only", why.values())

    def test_targets_whose_runtime_runs_no_stacks_get_experts_one_by_one(self):
        plan = json.loads(
            self.run_ok("plan", CHECKPOINTS / "ct-nested-moe", "-t", "onednn", "--fuse", "--json").stdout
        )
        self.assertEqual(plan["apart"], {})
        self.assertIn(f"{INT4}.3.up_proj", [module["module"] for module in plan["modules"]])

    def test_manifests_that_lie_about_experts_are_refused(self):
        source = CHECKPOINTS / "ct-nested-moe"
        out = self.convert(source, "vllm-cpu", "--fuse")
        sound = json.loads((out / raw.MANIFEST).read_text())
        number = 'field "experts" is not the number of experts that "fused" lists'
        names = "its members are not the layers that runtimes expect under this name"

        def lie(change):
            document = copy.deepcopy(sound)
            change(document["modules"][f"{INT4}.gate_up_proj"])
            raw.write_manifest(out, document)
            return self.run_tool("verify", out, "--source", source)

        for value, text in ((3, number), (0, number), (1, number), (2**64 - 1, number), (2, names), (8, names)):
            with self.subTest(experts=value):
                result = lie(lambda module, value=value: module.update(experts=value))
                self.assertIn(result.returncode, (1, 3), result.stdout)
                self.assertIn(text, result.stdout + result.stderr)
        for change in (
            lambda module: module.pop("experts"),
            lambda module: module["fused"].reverse(),
            lambda module: module.update(fused=module["fused"][:4] + module["fused"][6:] + module["fused"][4:6]),
        ):
            result = lie(change)
            self.assertIn(result.returncode, (1, 3), result.stdout)
            self.assertIn(names, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
