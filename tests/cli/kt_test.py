"""Experts for KTransformers: what kt-kernel finds in the folder, and what is refused."""

import json
import shutil
import unittest

import harness
import numpy
from harness import CHECKPOINTS

SOURCE = CHECKPOINTS / "ct-int8-moe"
PROJECTIONS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
LAYERS, EXPERTS = 2, 3


def bf16(data):
    return (numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


def closed_form(codes):
    """kt-kernel's bytes, with its names for the sizes of blocks."""
    n_all, k_all = codes.shape
    n, k = numpy.arange(n_all)[:, None], numpy.arange(k_all)[None]
    nb, kb = n // 64 * 64, k // 3584 * 3584
    nbs, kbs = numpy.minimum(64, n_all - nb), numpy.minimum(3584, k_all - kb)
    ns, ks, r = (n - nb) // 32 * 32, (k - kb) // 64 * 64, (n - nb) % 32
    packed = numpy.empty(n_all * k_all, numpy.int8)
    packed[
        nb * k_all + kb * nbs + ns * kbs + ks * 32 + (r // 16) * 1024 + ((k - kb - ks) // 4) * 64
        + (r % 16) * 4 + k % 4
    ] = codes
    return packed


class Kt(harness.ToolTest):
    def source_codes(self, name):
        _, shape, data = harness.read_tensors(SOURCE)[name + ".weight"]
        return numpy.frombuffer(data, numpy.int8).reshape(shape)

    def changed(self, change):
        """A copy whose tensors (dtype, shape, bytes) `change` has edited."""
        source = self.scratch / change.__name__
        shutil.copytree(SOURCE, source)
        tensors = harness.read_tensors(source)
        change(tensors)
        header, data = {}, b""
        for name, (dtype, shape, content) in tensors.items():
            offsets = [len(data), len(data) + len(content)]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
            data += content
        text = json.dumps(header).encode()
        (source / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        return source

    def plan(self, source, *options):
        run = self.run_ok("plan", source, "-t", "kt", "--json", *options)
        plan = self.checked_json(run.stdout, "plan")
        return {m["module"]: {**plan["choices"][m["choice"]], **m} for m in plan["modules"]}

    def test_a_folder_holds_what_kt_kernel_maps(self):
        out = self.convert(SOURCE, "kt")
        source, packed = harness.read_tensors(SOURCE), harness.read_tensors(out)
        experts = set()
        for layer in range(LAYERS):
            for expert in range(EXPERTS):
                for projection, name in PROJECTIONS.items():
                    module = f"model.layers.{layer}.mlp.experts.{expert}.{projection}"
                    ours = f"blk.{layer}.ffn_{name}_exps.{expert}.numa.0."
                    codes = self.source_codes(module)
                    dtype, shape, data = packed[ours + "weight"]
                    self.assertEqual((dtype, shape), ("I8", [codes.size]))
                    self.assertTrue((numpy.frombuffer(data, numpy.int8) == closed_form(codes)).all())
                    dtype, shape, data = packed[ours + "scale"]
                    self.assertEqual((dtype, shape), ("F32", [len(codes)]))
                    scales = bf16(source[module + ".weight_scale"][2])
                    self.assertTrue((numpy.frombuffer(data, numpy.float32) == scales).all())
                    experts |= {module + ".weight", module + ".weight_scale"}
        for name, tensor in source.items():
            if name in experts:
                self.assertNotIn(name, packed)
            else:
                self.assertEqual(packed[name], tensor)
        self.run_ok("verify", out, "--source", SOURCE)

    def test_a_weight_is_found(self):
        out = self.convert(SOURCE, "kt")
        module = "model.layers.1.mlp.experts.2.down_proj"
        text = self.run_ok("inspect", out, "--find", module, 37, 101, "--json").stdout
        found = self.checked_json(text, "inspect_find")
        self.assertEqual(found["source"]["weight"], found["packed"]["weight"])
        self.assertEqual(found["packed"]["numbers"][0]["where"][0]["tensor"], "blk.1.ffn_down_exps.2.numa.0.weight")

    def test_w8a16_experts_get_the_activations_of_the_kernel(self):
        source = self.copy_checkpoint("ct-int8-moe")
        config = json.loads((source / "config.json").read_text())
        config["quantization_config"]["config_groups"]["group_0"]["input_activations"] = None
        (source / "config.json").write_text(json.dumps(config))
        modules = self.plan(source)
        self.assertEqual({m["layout"] for m in modules.values()}, {"kt/amxint8"})
        self.assertIn("the checkpoint says activations", next(iter(modules.values()))["note"])
        self.run_ok("verify", self.convert(source, "kt"), "--source", source)

    def test_the_code_that_the_kernel_misreads(self):
        name = "model.layers.1.mlp.experts.1.up_proj"

        def spoil(tensors):
            dtype, shape, data = tensors[name + ".weight"]
            codes = numpy.frombuffer(data, numpy.int8).reshape(shape).copy()
            codes[70, 33] = -128
            tensors[name + ".weight"] = dtype, shape, codes.tobytes()

        self.assert_fails(
            5,
            [f"module {name}", "the kernel of kt/amxint8 reads weight (70, 33) as +128 where the activation is "
             "negative", "found code -128", "expected codes from -127 to 127"],
            "convert", self.changed(spoil), "-o", self.scratch / "out", "-t", "kt",
        )
        self.assertFalse((self.scratch / "out").exists())

    def test_a_layer_is_packed_whole_or_not_at_all(self):
        prefix = "model.layers.0.mlp.experts."

        def without_the_middle(tensors):
            for name in [n for n in tensors if n.startswith(prefix + "1.")]:
                del tensors[name]

        def biased(tensors):
            tensors[prefix + "1.up_proj.bias"] = ("BF16", [128], bytes(256))

        for change, own in ((without_the_middle, ""), (biased, "1.up_proj")):
            with self.subTest(change=change.__name__):
                modules = self.plan(self.changed(change))
                for module, row in modules.items():
                    if not module.startswith(prefix):
                        self.assertEqual(row["layout"], "kt/amxint8")
                        continue
                    self.assertIsNone(row["layout"])
                    reason = "kt-kernel reads all experts of a layer or none"
                    if own and module.endswith(own):
                        reason = "the module has a bias: the kernel adds none"
                    self.assertIn(reason, row["candidates"][0]["reason"])

    def test_other_formats_are_told_where_to_go(self):
        for name, words in {
            "ct-nested-moe": "--kt-method RAWINT4",
            "fp8-ue8m0": "--kt-method FP8",
            "ct-w8a8-dynamic": "the module is not an expert",
        }.items():
            with self.subTest(checkpoint=name):
                self.assert_fails(
                    5, [words], "convert", CHECKPOINTS / name, "-o", self.scratch / "out", "-t", "kt"
                )
        self.assertFalse((self.scratch / "out").exists())

    def test_damage_is_found(self):
        out = self.convert(SOURCE, "kt")
        path = out / "model.safetensors"
        header, start = harness.read_header(path)
        begin = start + header["blk.0.ffn_gate_exps.1.numa.0.weight"]["data_offsets"][0]
        data = bytearray(path.read_bytes())
        data[begin + 5] ^= 1
        path.write_bytes(data)
        result = self.run_tool("verify", out, "--source", SOURCE)
        self.assertEqual(result.returncode, 1)
        self.assertIn("model.layers.0.mlp.experts.1.gate_proj", result.stdout)

    def test_experts_are_cut_for_numa_nodes(self):
        out = self.convert(SOURCE, "kt", "--numa", "2")
        packed, source = harness.read_tensors(out), harness.read_tensors(SOURCE)
        for layer in range(LAYERS):
            for expert in range(EXPERTS):
                for projection, name in PROJECTIONS.items():
                    module = f"model.layers.{layer}.mlp.experts.{expert}.{projection}"
                    codes = self.source_codes(module)
                    scales = bf16(source[module + ".weight_scale"][2])
                    for node in range(2):
                        ours = f"blk.{layer}.ffn_{name}_exps.{expert}.numa.{node}."
                        if projection == "down_proj":
                            share, own = numpy.split(codes, 2, axis=1)[node], scales
                        else:
                            share, own = numpy.split(codes, 2)[node], numpy.split(scales, 2)[node]
                        weight = numpy.frombuffer(packed[ours + "weight"][2], numpy.int8)
                        self.assertTrue((weight == closed_form(share)).all(), ours)
                        self.assertEqual(packed[ours + "scale"][2], own.tobytes())
        self.run_ok("verify", out, "--source", SOURCE)
        self.assertEqual(len([n for n in packed if n.startswith("blk.")]), LAYERS * EXPERTS * 3 * 2 * 2)

    def test_a_weight_of_a_node_is_found_in_the_source(self):
        out = self.convert(SOURCE, "kt", "--numa", "2")
        for projection, (n, k), (source_n, source_k) in (
            ("down_proj", (37, 41), (37, 105)), ("up_proj", (37, 41), (101, 41)),
        ):
            module = f"model.layers.1.mlp.experts.2.{projection}"
            text = self.run_ok("inspect", out, "--find", module + ".numa.1", n, k, "--json").stdout
            found = self.checked_json(text, "inspect_find")
            code = self.source_codes(module)[source_n, source_k]
            for side in ("source", "packed"):
                self.assertEqual(found[side]["numbers"][0]["value"], code)
            where = found["source"]["numbers"][0]["where"][0]
            self.assertEqual(where["tensor"], module + ".weight")
            self.assertEqual(where["offset_in_tensor"], source_n * self.source_codes(module).shape[1] + source_k)

    def test_nodes_that_do_not_go(self):
        out = self.scratch / "out"
        for options, code, words in (
            (["-t", "kt", "--numa", "3"], 2,
             ["cannot be cut for 3 nodes (found 128 input channels, expected a multiple of 192"]),
            (["-t", "kt", "--numa", "4"], 2, ["cannot be cut for 4 nodes"]),
            (["-t", "kt", "--numa", "0"], 2, ["not a number of NUMA nodes (found 0, expected 1 to 64)"]),
            (["-t", "kt", "--numa", "65"], 2, ["not a number of NUMA nodes"]),
            (["-t", "onednn", "--numa", "2"], 2, ["this option is only for another target"]),
        ):
            with self.subTest(options=options):
                self.assert_fails(code, words, "convert", SOURCE, "-o", out, *options)
        self.assertFalse(out.exists())

    def test_damage_in_the_share_of_a_node_is_found(self):
        out = self.convert(SOURCE, "kt", "--numa", "2")
        names = [f"model.layers.0.mlp.experts.1.{p}.weight" for p in ("down_proj", "gate_proj")]

        def other(tensors):
            for name in names:
                dtype, shape, data = tensors[name]
                codes = numpy.frombuffer(data, numpy.int8).reshape(shape).copy()
                codes[-1, -1] ^= 1
                tensors[name] = dtype, shape, codes.tobytes()

        result = self.run_tool("verify", out, "--source", self.changed(other), "--json")
        self.assertEqual(result.returncode, 1)
        for module in ("down_proj.numa.1", "gate_proj.numa.1"):
            self.assertIn(f"model.layers.0.mlp.experts.1.{module}", result.stdout)

    def test_a_layer_that_is_kept_is_not_cut(self):
        def biased(tensors):
            tensors["model.layers.0.mlp.experts.1.up_proj.bias"] = ("BF16", [128], bytes(256))

        source = self.changed(biased)
        out = self.convert(source, "kt", "--numa", "2")
        packed = harness.read_tensors(out)
        self.assertIn("model.layers.0.mlp.experts.0.up_proj.weight", packed)
        self.assertFalse(any(name.startswith("blk.0.") for name in packed))
        self.assertIn("blk.1.ffn_up_exps.2.numa.1.weight", packed)
        self.run_ok("verify", out, "--source", source)

    def test_a_folder_as_a_source(self):
        whole = self.convert(SOURCE, "kt")
        back = self.convert(whole, "compressed-tensors", name="back")
        packed = harness.read_tensors(back)
        for name, tensor in harness.read_tensors(SOURCE).items():
            if name.endswith("_proj.weight") and ".experts." in name:
                self.assertEqual(packed[name], tensor)
        cut = self.convert(SOURCE, "kt", "--numa", "2", name="cut")
        self.assert_fails(
            5, ["down_proj.numa.0: it is the share of one NUMA node"], "convert", cut, "-o",
            self.scratch / "out", "-t", "compressed-tensors",
        )

    def test_a_run_is_resumed_with_the_same_nodes_only(self):
        self.convert(SOURCE, "kt", "--part", "1/2", name="parts")
        self.convert(SOURCE, "kt", "--part", "2/2", "--numa", "2", name="parts")
        result = self.run_tool("merge", self.scratch / "parts")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("other options", result.stderr)


if __name__ == "__main__":
    unittest.main()
