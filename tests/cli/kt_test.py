"""Experts for KTransformers: what kt-kernel finds in the folder, and what is refused."""

import json
import re
import shutil
import unittest

import harness
import numpy
from harness import CHECKPOINTS

SOURCE = CHECKPOINTS / "ct-int8-moe"
INT4 = CHECKPOINTS / "ct-int4-moe"
PROJECTIONS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
LAYERS = 2
EXPERTS = {SOURCE: 3, INT4: 2}


def bf16(data):
    return (numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


def closed_form(source, codes):
    """kt-kernel's bytes, with its names for the sizes of blocks."""
    n_all, k_all = codes.shape
    n, k = numpy.arange(n_all)[:, None], numpy.arange(k_all)[None]
    step = 128 if source == INT4 else 64  # N_BLOCK, and input channels of a tile
    nb, kb = n // step * step, k // 3584 * 3584
    nbs, kbs = numpy.minimum(step, n_all - nb), numpy.minimum(3584, k_all - kb)
    ns, ks, r = (n - nb) // 32 * 32, (k - kb) // step * step, (n - nb) % 32
    before = (nb * k_all + kb * nbs + ns * kbs + ks * 32) * 64 // step
    at = before + (r // 16) * 1024 + (k % 64 // 4) * 64 + (r % 16) * 4 + k % 4
    packed = numpy.zeros(n_all * k_all * 64 // step, numpy.uint8)
    if source == SOURCE:
        packed[at] = codes.view(numpy.uint8)
        return packed.view(numpy.int8)
    for half in (0, 1):
        here = numpy.broadcast_to(k % 128 // 64 == half, codes.shape)
        packed[at[here]] |= (codes[here] & 15).astype(numpy.uint8) << 4 * half
    return packed.view(numpy.int8)


def stored_scales(source, scales):
    return scales / numpy.float32(16) if source == INT4 else scales


def codes_of(tensors, name):
    """Signed codes [N, K]."""
    if name + ".weight" in tensors:
        _, shape, data = tensors[name + ".weight"]
        return numpy.frombuffer(data, numpy.int8).reshape(shape)
    _, shape, data = tensors[name + ".weight_packed"]
    words = numpy.frombuffer(data, numpy.uint32).reshape(shape)
    nibbles = words[:, :, None] >> numpy.arange(0, 32, 4, dtype=numpy.uint32) & 15
    return nibbles.reshape(len(words), -1).astype(numpy.int8) - 8


def set_codes(tensors, name, codes):
    if name + ".weight" in tensors:
        tensors[name + ".weight"] = "I8", list(codes.shape), codes.astype(numpy.int8).tobytes()
        return
    nibbles = (codes + 8).astype(numpy.uint32).reshape(len(codes), -1, 8)
    words = (nibbles << numpy.arange(0, 32, 4, dtype=numpy.uint32)).sum(2, dtype=numpy.uint32)
    tensors[name + ".weight_packed"] = "I32", list(words.shape), words.tobytes()


def experts_of(source):
    """Layer, expert, projection, and the name of the module."""
    for layer in range(LAYERS):
        for expert in range(EXPERTS[source]):
            for projection in PROJECTIONS:
                yield layer, expert, projection, f"model.layers.{layer}.mlp.experts.{expert}.{projection}"


class Kt(harness.ToolTest):
    def source_codes(self, name):
        return codes_of(harness.read_tensors(SOURCE), name)

    def changed(self, change, of=SOURCE):
        """A copy whose tensors (dtype, shape, bytes) `change` has edited."""
        source = self.scratch / f"{change.__name__}-{of.name}"
        shutil.copytree(of, source)
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

    def check_experts(self, source, packed):
        """All tensors of experts. The names of those in the source."""
        tensors = harness.read_tensors(source)
        names = set()
        for layer, expert, projection, module in experts_of(source):
            ours = f"blk.{layer}.ffn_{PROJECTIONS[projection]}_exps.{expert}.numa.0."
            codes = codes_of(tensors, module)
            dtype, shape, data = packed[ours + "weight"]
            expected = closed_form(source, codes)
            self.assertEqual((dtype, shape), ("I8", [expected.size]))
            self.assertTrue((numpy.frombuffer(data, numpy.int8) == expected).all())
            dtype, shape, data = packed[ours + "scale"]
            self.assertEqual((dtype, shape), ("F32", [len(codes)]))
            scales = stored_scales(source, bf16(tensors[module + ".weight_scale"][2]))
            self.assertTrue((numpy.frombuffer(data, numpy.float32) == scales).all())
            names |= {name for name in tensors if name.startswith(module + ".")}
        return names

    def test_a_folder_holds_what_kt_kernel_maps(self):
        for source in EXPERTS:
            with self.subTest(source=source.name):
                out = self.convert(source, "kt", name=source.name)
                packed = harness.read_tensors(out)
                experts = self.check_experts(source, packed)
                for name, tensor in harness.read_tensors(source).items():
                    if name in experts:
                        self.assertNotIn(name, packed)
                    else:
                        self.assertEqual(packed[name], tensor)
                self.run_ok("verify", out, "--source", source)

    def test_a_weight_is_found(self):
        module = "model.layers.1.mlp.experts.1.down_proj"
        for source in EXPERTS:
            with self.subTest(source=source.name):
                out = self.convert(source, "kt", name=source.name)
                text = self.run_ok("inspect", out, "--find", module, 37, 101, "--json").stdout
                found = self.checked_json(text, "inspect_find")
                self.assertEqual(found["source"]["weight"], found["packed"]["weight"])
                self.assertEqual(found["packed"]["numbers"][0]["where"][0]["tensor"],
                                 "blk.1.ffn_down_exps.1.numa.0.weight")

    def test_4_bit_experts_get_the_activations_of_the_kernel(self):
        modules = self.plan(INT4)
        self.assertEqual({m["layout"] for m in modules.values()}, {"kt/amxint4"})
        self.assertIn("the checkpoint says activations: none", next(iter(modules.values()))["note"])
        self.assert_fails(5, ["activations are not quantized: the kernel quantizes them itself"], "convert", INT4,
                          "-o", self.scratch / "out", "-t", "kt", "--scheme", "w4a16")

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
        for source, layout, least in ((SOURCE, "kt/amxint8", -128), (INT4, "kt/amxint4", -8)):
            for n, k in ((70, 33), (70, 62), (127, 63), (0, 0)):
                def spoil(tensors):
                    codes = codes_of(tensors, name).copy()
                    codes[n, k] = least
                    set_codes(tensors, name, codes)

                with self.subTest(layout=layout, n=n, k=k):
                    changed = self.changed(spoil, source)
                    self.assert_fails(
                        5,
                        [f"module {name}", f"the kernel of {layout} reads weight ({n}, {k}) as +{-least} where the "
                         "activation is negative", f"found code {least}",
                         f"expected codes from {least + 1} to {-least - 1}"],
                        "convert", changed, "-o", self.scratch / "out", "-t", "kt",
                    )
                    shutil.rmtree(changed)
        self.assertFalse((self.scratch / "out").exists())

    def test_a_scale_without_a_sixteenth(self):
        name = "model.layers.0.mlp.experts.1.gate_proj.weight_scale"

        def tiny(tensors):
            _, shape, data = tensors[name]
            scales = bf16(data).copy()
            scales[5] = 1.1754945e-38  # above 2^-126: a sixteenth has fewer digits
            tensors[name] = "F32", shape, scales.tobytes()

        self.assert_fails(
            5, ["gate_proj", "scale of row 5, group 0: F32 cannot hold a sixteenth of it"],
            "convert", self.changed(tiny, INT4), "-o", self.scratch / "out", "-t", "kt",
        )

    def two_widths(self, pattern):
        """ct-int4-moe with 8 bits in the modules that the pattern is found in; the codes are the same."""
        source = self.copy_checkpoint("ct-int4-moe")
        config = json.loads((source / "config.json").read_text())
        quantization = config["quantization_config"]
        group = quantization["config_groups"]["group_0"]
        weights = group["weights"] | {"num_bits": 8}
        wide = group | {"format": "int-quantized", "targets": [f"re:{pattern}"], "weights": weights}
        # The first group that names a module counts.
        quantization["config_groups"] = {"group_0": wide, "group_1": group | {"targets": [f"re:(?!{pattern}).*"]}}
        quantization["format"] = "mixed-precision"
        (source / "config.json").write_text(json.dumps(config))
        tensors = harness.read_tensors(source)
        for *_, module in experts_of(INT4):
            if re.match(pattern, module):
                codes = codes_of(tensors, module)
                del tensors[module + ".weight_packed"], tensors[module + ".weight_shape"]
                tensors[module + ".weight"] = "I8", list(codes.shape), codes.tobytes()
        (source / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        return source

    def test_all_experts_have_one_width(self):
        """kt-kernel is told one method for all layers: the experts of the others are kept."""
        for name, pattern, packed, layout in (
            ("layers of both, as many of each", r".*layers\.1\.", "model.layers.1.", "kt/amxint8"),
            ("a layer of both", r".*layers\.1\..*up_proj", "model.layers.0.", "kt/amxint4"),
        ):
            with self.subTest(name):
                source = self.two_widths(pattern)
                for module, row in self.plan(source).items():
                    if module.startswith(packed):
                        self.assertEqual(row["layout"], layout)
                        continue
                    self.assertIsNone(row["layout"])
                    self.assertIn("other experts of the model have codes of another width",
                                  row["candidates"][0 if re.match(pattern, module) else 1]["reason"])
                out = self.convert(source, "kt", name="widths")
                self.run_ok("verify", out, "--source", source)
                shutil.rmtree(out)
                shutil.rmtree(source)

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
            "fp8-ue8m0": "--kt-method FP8",
            "ct-w8a8-dynamic": "the module is not an expert",
        }.items():
            with self.subTest(checkpoint=name):
                self.assert_fails(
                    5, [words], "convert", CHECKPOINTS / name, "-o", self.scratch / "out", "-t", "kt"
                )
        self.assertFalse((self.scratch / "out").exists())

    def test_groups_are_told_where_to_go(self):
        run = self.run_tool("plan", CHECKPOINTS / "ct-nested-moe", "-t", "kt", "--json")
        self.assertEqual(run.returncode, 5)
        reasons = [c["reason"] for choice in json.loads(run.stdout)["choices"] for c in choice["candidates"]]
        self.assertEqual(sum("--kt-method RAWINT4" in reason for reason in reasons), 1)

    def test_damage_is_found(self):
        for source in EXPERTS:
            for part in ("weight", "scale"):
                with self.subTest(source=source.name, part=part):
                    out = self.convert(source, "kt", name=f"{source.name}-{part}")
                    path = out / "model.safetensors"
                    header, start = harness.read_header(path)
                    begin = start + header[f"blk.0.ffn_gate_exps.1.numa.0.{part}"]["data_offsets"][0]
                    data = bytearray(path.read_bytes())
                    data[begin + 5] ^= 1
                    path.write_bytes(data)
                    result = self.run_tool("verify", out, "--source", source)
                    self.assertEqual(result.returncode, 1)
                    self.assertIn("model.layers.0.mlp.experts.1.gate_proj", result.stdout)

    def test_experts_are_cut_for_numa_nodes(self):
        for source, experts in EXPERTS.items():
            with self.subTest(source=source.name):
                out = self.convert(source, "kt", "--numa", "2", name=source.name)
                packed, tensors = harness.read_tensors(out), harness.read_tensors(source)
                for layer, expert, projection, module in experts_of(source):
                    codes = codes_of(tensors, module)
                    scales = stored_scales(source, bf16(tensors[module + ".weight_scale"][2]))
                    for node in range(2):
                        ours = f"blk.{layer}.ffn_{PROJECTIONS[projection]}_exps.{expert}.numa.{node}."
                        if projection == "down_proj":
                            share, own = numpy.split(codes, 2, axis=1)[node], scales
                        else:
                            share, own = numpy.split(codes, 2)[node], numpy.split(scales, 2)[node]
                        weight = numpy.frombuffer(packed[ours + "weight"][2], numpy.int8)
                        self.assertTrue((weight == closed_form(source, share)).all(), ours)
                        self.assertEqual(packed[ours + "scale"][2], own.tobytes())
                self.run_ok("verify", out, "--source", source)
                self.assertEqual(len([n for n in packed if n.startswith("blk.")]), LAYERS * experts * 3 * 2 * 2)

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
        self.assert_fails(
            2, ["found 256 input channels, expected a multiple of 512: each node computes a multiple of 128"],
            "convert", INT4, "-o", out, "-t", "kt", "--numa", "4")
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
        for source in EXPERTS:
            with self.subTest(source=source.name):
                whole = self.convert(source, "kt", name=f"{source.name}-whole")
                back = harness.read_tensors(self.convert(whole, "compressed-tensors", name=f"{source.name}-back"))
                tensors = harness.read_tensors(source)
                for *_, module in experts_of(source):
                    self.assertTrue((codes_of(back, module) == codes_of(tensors, module)).all())
                    dtype, _, scales = back[module + ".weight_scale"]
                    numbers = numpy.frombuffer(scales, numpy.float32) if dtype == "F32" else bf16(scales)
                    self.assertTrue((numbers == bf16(tensors[module + ".weight_scale"][2])).all())
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
