"""The whole way, as a user goes it: convert, verify, inspect, plan, targets on real checkpoints."""

import json
import shutil
import struct
import subprocess
import sys
import unittest

import numpy
import safetensors

import harness
from harness import CHECKPOINT_TARGETS, CHECKPOINTS, EXPERT_TARGETS, KERNEL_TARGETS, TARGETS, TOOL, W4A16


def parts_of(target, module, symmetric):
    """The documented dtype and shape of every part of a packed module, by its [N, K] and groups."""
    n, k, groups = module
    if target == "vllm-cpu":
        parts = {
            "weight": ("I32", [n // 16, 2 * k]),
            "weight_scale": ("BF16", [groups, n]),
            "weight_zero_point": ("I32", [groups, n // 8]),
        }
    elif target == "onednn":
        parts = {
            "weight": ("U8", [k, n // 2]),
            "weight_scale": ("F32", [groups, n]),
            "weight_zero_point": ("U8", [groups, n // 2]),
        }
    else:
        parts = {
            "weight": ("I32", [n, k // 8]),
            "weight_scale": ("BF16", [groups, n]),
            "weight_zero_point": ("I8", [groups, n]),
        }
    if symmetric:
        del parts["weight_zero_point"]
    return parts


class RealCheckpoints(harness.ToolTest):
    def test_convert_and_verify(self):
        for name in W4A16:
            for target in TARGETS:
                with self.subTest(checkpoint=name, target=target):
                    source = CHECKPOINTS / name
                    before = harness.snapshot(source)
                    out = self.convert(source, target)
                    self.assertEqual(harness.snapshot(source), before)
                    result = self.run_ok("verify", out, "--source", source, "--json")
                    report = self.checked_json(result.stdout, "verify")
                    self.assertEqual(report["verdict"], "passed")
                    self.assertEqual(len(report["modules"]), 7)
                    for module in report["modules"]:
                        self.assertIs(module["exact"], True)
                        self.assertGreaterEqual(harness.sqnr_db(module, "end_to_end"), 40, module)
                        self.assertGreaterEqual(harness.sqnr_db(module, "kernel"), 48, module)
                        self.assertEqual(module["max_scale_difference"], 0)
                    self.assertTrue(report["engine"].startswith("onednn 3."), report["engine"])

    def test_output_is_what_the_docs_say(self):
        for name in W4A16:
            source = harness.read_tensors(CHECKPOINTS / name)
            symmetric = "asym" not in name
            modules = [n[: -len(".weight_packed")] for n in source if n.endswith(".weight_packed")]
            for target in TARGETS:
                out = self.convert(CHECKPOINTS / name, target)
                packed = harness.read_tensors(out)
                expected = set()
                for module in modules:
                    n, k = numpy.frombuffer(source[module + ".weight_shape"][2], numpy.int64)
                    groups = source[module + ".weight_scale"][1][1]
                    parts = parts_of(target, (int(n), int(k), groups), symmetric)
                    for part, (dtype, shape) in parts.items():
                        tensor = packed[f"{module}.{part}"]
                        self.assertEqual((tensor[0], tensor[1]), (dtype, shape))
                        expected.add(f"{module}.{part}")
                # Everything else arrives bit for bit.
                for tensor, value in source.items():
                    if any(tensor.startswith(module + ".weight") for module in modules):
                        continue
                    self.assertEqual(packed[tensor], value, tensor)
                    expected.add(tensor)
                self.assertEqual(set(packed), expected)

    def test_opens_with_safetensors_and_is_aligned(self):
        out = self.convert(CHECKPOINTS / "ct-w4a16-g32-asym", "vllm-cpu")
        path = out / "model.safetensors"
        header, start = harness.read_header(path)
        self.assertEqual(start % 4096, 0)
        self.assertTrue(header)
        for name, info in header.items():
            begin, end = info["data_offsets"]
            if (end - begin) % 64 == 0:
                self.assertEqual(begin % 64, 0, name)
        with safetensors.safe_open(path, framework="numpy") as opened:
            self.assertEqual(set(opened.keys()), set(header))
            weight = opened.get_tensor("model.layers.0.mlp.down_proj.weight")
            self.assertEqual(weight.dtype, numpy.int32)
            self.assertEqual(weight.shape, (24, 3072))

    def test_sharded_source_gives_the_same_bytes(self):
        one = harness.read_tensors(self.convert(CHECKPOINTS / "ct-w4a16-g128-sym", "vllm-cpu"))
        many = harness.read_tensors(self.convert(CHECKPOINTS / "ct-w4a16-g128-sharded", "vllm-cpu"))
        self.assertEqual(one, many)

    def test_same_bytes_for_any_threads_and_instruction_set(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        for target in TARGETS:
            folders = [
                self.convert(source, target, "--jobs", jobs, name=f"{target}-{jobs}")
                for jobs in (1, 2, 7)
            ]
            folders.append(self.convert(source, target, "--no-flush", name=f"{target}-unflushed"))
            folders.append(
                self.convert(source, target, name=f"{target}-scalar", env={"PREPACK_ISA": "scalar"})
            )
            contents = [{p.name: p.read_bytes() for p in f.iterdir()} for f in folders]
            for content in contents[1:]:
                self.assertEqual(content, contents[0])

    def test_codes_are_read_from_any_address(self):
        """Data may begin at any byte of a file, and codes are packed where they lie there."""
        for name in ("ct-w4a16-g128-sym", "ct-w8a8-dynamic"):
            expected = {t: harness.read_tensors(self.convert(CHECKPOINTS / name, t)) for t in TARGETS}
            source = self.copy_checkpoint(name)
            path = source / "model.safetensors"
            data = path.read_bytes()
            size = struct.unpack("<Q", data[:8])[0]
            for spaces in (1, 3, 5):
                header = data[8 : 8 + size] + b" " * spaces
                path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + size :])
                for target in TARGETS:
                    out = self.convert(source, target, name=f"{name}-{target}-{spaces}")
                    self.assertEqual(harness.read_tensors(out), expected[target])

    def test_every_dtype_passes_through(self):
        source = self.copy_checkpoint()
        tensors = harness.read_tensors(source)
        bits = {
            4: ["F4"],
            6: ["F6_E2M3", "F6_E3M2"],
            8: ["BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"],
            16: ["I16", "U16", "F16", "BF16"],
            32: ["I32", "U32", "F32"],
            64: ["C64", "F64", "I64", "U64"],
        }
        for width, dtypes in bits.items():
            for dtype in dtypes:
                size = 3 * 4 * width // 8
                tensors[f"extra.{dtype}"] = (dtype, [3, 4], bytes(range(7, 7 + size)))
        tensors["extra.empty"] = ("F32", [0, 5], b"")
        tensors["extra.scalar"] = ("BF16", [], b"\x80\x3f")
        (source / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        for target in TARGETS:
            out = self.convert(source, target, "--verify")
            packed = harness.read_tensors(out)
            extras = {n: v for n, v in tensors.items() if n.startswith("extra.")}
            self.assertEqual(len(extras), 24)
            self.assertEqual({n: v for n, v in packed.items() if n.startswith("extra.")}, extras)

    def test_config_and_side_files(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        out = self.convert(source, "vllm-cpu")
        config = json.loads((out / "config.json").read_text())
        original = json.loads((source / "config.json").read_text())
        quantization = config.pop("quantization_config")
        self.assertEqual(quantization["quant_method"], "prepack")
        self.assertEqual(quantization["target"], "vllm-cpu")
        self.assertEqual(quantization["layout"], "vllm-cpu/wna16")
        self.assertEqual(quantization["bits"], 4)
        self.assertEqual(quantization["group_size"], 128)
        self.assertIs(quantization["symmetric"], True)
        self.assertEqual(quantization["ignore"], ["lm_head"])
        self.assertEqual(quantization["source"], original.pop("quantization_config"))
        self.assertEqual(config, original)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            self.assertEqual((out / name).read_bytes(), (source / name).read_bytes())

    def test_every_json_follows_its_schema(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        out = self.scratch / "out"
        convert = self.run_ok("convert", source, "-o", out, "-t", "zentorch", "--json").stdout
        report = self.checked_json(convert, "convert")
        self.assertEqual(report["packed_modules"], 7)
        self.assertEqual(report["layouts"], {"zentorch/woq": 7})
        manifest = self.checked_json((out / "prepack.json").read_text(), "manifest")
        self.assertEqual(len(manifest["modules"]), 7)
        self.assertEqual(manifest["source"]["fingerprint"], report["source_fingerprint"])
        plan = self.run_ok("plan", source, "-t", "vllm-cpu", "--json").stdout
        plan = self.checked_json(plan, "plan")
        self.assertEqual({m["layout"] for m in plan["modules"]}, {"vllm-cpu/wna16"})
        targets = self.checked_json(self.run_ok("targets", "--json").stdout, "targets")
        self.assertEqual(
            [t["target"] for t in targets["targets"]], KERNEL_TARGETS + EXPERT_TARGETS + CHECKPOINT_TARGETS
        )
        for path in (source, out, out / "model.safetensors"):
            inspect = self.run_ok("inspect", path, "--json").stdout
            self.checked_json(inspect, "inspect")
        one = self.run_ok(
            "inspect", out, "--json", "--module", "model.layers.0.mlp.down_proj"
        ).stdout
        one = self.checked_json(one, "inspect")
        self.assertEqual([m["shape"] for m in one["modules"]], [[384, 1536]])
        self.assertEqual(len(one["tensors"]), 3)

    def test_f16_activations(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        out = self.convert(source, "vllm-cpu", "--dtype", "f16")
        tensors = harness.read_tensors(out)
        self.assertEqual(tensors["model.layers.0.mlp.up_proj.weight_scale"][0], "F16")
        manifest = json.loads((out / "prepack.json").read_text())
        rounding = manifest["modules"]["model.layers.0.mlp.up_proj"]["scale_rounding"]
        self.assertEqual(rounding, "BF16 to F16, nearest even")
        self.assert_fails(
            5,
            ["model.layers.0.mlp.down_proj", "zentorch/woq: activations are F16"],
            *("convert", source, "-o", self.scratch / "z", "-t", "zentorch", "--dtype", "f16"),
        )
        self.assertFalse((self.scratch / "z").exists())

    def test_schemes_by_pattern(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        out = self.convert(source, "vllm-cpu", "--scheme", "w4a16", "--scheme", "mlp=w4a8")
        manifest = self.checked_json((out / "prepack.json").read_text(), "manifest")
        layouts = {name: module["layout"] for name, module in manifest["modules"].items()}
        for name, layout in layouts.items():
            expected = "vllm-cpu/int4-w4a8" if ".mlp." in name else "vllm-cpu/wna16"
            self.assertEqual(layout, expected, name)
        up = manifest["modules"]["model.layers.0.mlp.up_proj"]
        self.assertEqual(up["scheme"], "w4a8")
        self.assertEqual(up["parts"]["weight"]["shape"], [48, 3, 2176])
        self.assertEqual(up["parts"]["weight_zero_point"]["dtype"], "I8")
        config = json.loads((out / "config.json").read_text())["quantization_config"]
        self.assertEqual(config["layout"], "vllm-cpu/wna16")
        self.assertEqual(len(config["exceptions"]), 3)
        self.assert_fails(
            2, ["--scheme mlp=w8a8", "matches no module"],
            *("plan", source, "-t", "vllm-cpu", "--scheme", "mlp=w8a8"),
        )
        self.assert_fails(
            2, ["unknown scheme", "Did you mean w4a8?"],
            *("plan", source, "-t", "vllm-cpu", "--scheme", "w4a9"),
        )

    def test_weights_become_bf16_on_demand(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        args = (source, "-o", self.scratch / "mixed", "-t", "vllm-cpu", "--scheme", "mlp=bf16")
        said = self.run_ok("convert", *args).stdout
        self.assertIn("3 × plain/bf16\n      4 × vllm-cpu/wna16\n", said)
        self.assertIn("down_proj and 2 more dequantized: --scheme asks for bf16\n", said)
        manifest = self.checked_json((self.scratch / "mixed/prepack.json").read_text(), "manifest")
        names = [f"model.layers.0.mlp.{name}_proj" for name in ("down", "gate", "up")]
        self.assertEqual(manifest["dequantized"], dict.fromkeys(names, "--scheme asks for bf16"))
        mixed = harness.read_tensors(self.scratch / "mixed")
        plain = harness.read_tensors(self.convert(source, "bf16"))
        for name in names:
            self.assertEqual(mixed[f"{name}.weight"], plain[f"{name}.weight"])
        self.run_ok("verify", self.scratch / "mixed", "--source", source)
        strict = self.run_tool("verify", self.scratch / "mixed", "--source", source, "--strict")
        self.assertEqual(strict.returncode, 1)
        self.assertIn("its weights were dequantized", strict.stdout)
        # Also where a layout for bf16 exists that not every CPU reads.
        whole = self.convert(source, "vllm-cpu", "--scheme", "bf16", "--fuse", name="whole")
        modules = self.checked_json((whole / "prepack.json").read_text(), "manifest")["modules"]
        self.assertEqual({module["layout"] for module in modules.values()}, {"plain/bf16"})
        self.assertIn("model.layers.0.mlp.gate_up_proj", modules)
        self.assert_fails(
            2, ["--scheme lm_head=bf16", "matches no module", "(expected a pattern that matches modules)"],
            *("plan", source, "-t", "vllm-cpu", "--scheme", "lm_head=bf16"),
        )

    def test_fallback(self):
        source = CHECKPOINTS / "ar-w4-sym-mixed"
        out = self.convert(source, "vllm-cpu", "--fallback", "dequantize")
        manifest = self.checked_json((out / "prepack.json").read_text(), "manifest")
        self.assertEqual(list(manifest["dequantized"]), ["model.layers.0.mlp.down_proj"])
        down = manifest["modules"]["model.layers.0.mlp.down_proj"]
        self.assertEqual(down["layout"], "vllm-cpu/bf16-vnni")
        self.assertEqual(down["scheme"], "bf16")
        self.assertEqual(list(down["parts"]), ["weight"])
        self.assertEqual(down["parts"]["weight"]["shape"], [384, 1536])
        plain = self.convert(source, "zentorch", "--fallback", "dequantize")
        tensors = harness.read_tensors(plain)
        self.assertEqual(tensors["model.layers.0.mlp.down_proj.weight"][0], "BF16")
        kept = self.convert(source, "vllm-cpu", name="kept")
        tensors = harness.read_tensors(kept)
        self.assertIn("model.layers.0.mlp.down_proj.qweight", tensors)
        self.assert_fails(
            5, ["down_proj", "the codes have 8 bits", "--fallback keep"],
            *("plan", source, "-t", "vllm-cpu", "--fallback", "error"),
        )

    def test_exact_scales(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        name = "model.layers.0.mlp.up_proj.weight_scale"
        exact = self.convert(source, "zentorch", "--scales", "exact")
        self.assertEqual(harness.read_tensors(exact)[name][0], "F32")
        manifest = self.checked_json((exact / "prepack.json").read_text(), "manifest")
        self.assertEqual(manifest["scales"], "exact")
        runtime = self.convert(source, "zentorch", name="runtime")
        self.assertEqual(harness.read_tensors(runtime)[name][0], "BF16")

    def test_activation_order_is_a_part(self):
        out = self.convert(CHECKPOINTS / "gptqmodel-w4-actorder-g128", "vllm-cpu")
        tensors = harness.read_tensors(out)
        dtype, shape, data = tensors["model.layers.0.mlp.down_proj.input_order"]
        self.assertEqual((dtype, shape), ("I32", [1536]))
        order = [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]
        self.assertEqual(sorted(order), list(range(1536)))
        self.assertNotEqual(order, list(range(1536)))
        self.assertNotIn("model.layers.0.mlp.down_proj.g_idx", tensors)

    def test_static_activations_are_parts(self):
        out = self.convert(CHECKPOINTS / "ct-w8a8-static", "vllm-cpu")
        tensors = harness.read_tensors(out)
        name = "model.layers.0.mlp.down_proj."
        self.assertEqual(tensors[name + "input_scale"][:2], ("F32", [1]))
        self.assertNotIn(name + "input_zero_point", tensors)
        self.assertNotIn(name + "azp_adj", tensors)
        out = self.convert(CHECKPOINTS / "ct-w8a8-asym-act", "vllm-cpu")
        self.assertEqual(harness.read_tensors(out)[name + "azp_adj"][:2], ("F32", [384]))

    def write_modules(self, shapes, group_size=32):
        """A compressed-tensors checkpoint of 4-bit modules with such names and shapes [N, K]."""
        source = self.scratch / f"modules-{len(list(self.scratch.iterdir()))}"
        shutil.copytree(CHECKPOINTS / "ct-w4a16-g128-sym", source)
        random = numpy.random.default_rng(1)
        tensors = {}
        for name, (n, k) in shapes.items():
            words = random.integers(0, 2**32, (n, k // 8), dtype=numpy.uint32)
            scales = random.integers(0x3C00, 0x3C80, (n, k // group_size)).astype(numpy.uint16)
            shape = numpy.array([n, k], dtype=numpy.int64)
            tensors[name + ".weight_packed"] = ("I32", [n, k // 8], words.tobytes())
            tensors[name + ".weight_scale"] = ("BF16", [n, k // group_size], scales.tobytes())
            tensors[name + ".weight_shape"] = ("I64", [2], shape.tobytes())
        (source / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        config = json.loads((source / "config.json").read_text())
        del config["architectures"]  # these are modules, and no model
        weights = config["quantization_config"]["config_groups"]["group_0"]["weights"]
        weights["group_size"] = group_size
        (source / "config.json").write_text(json.dumps(config))
        return source

    def test_every_expert_is_packed_under_its_name(self):
        prefix = "model.layers.0.mlp.experts."
        shapes = {}
        for expert in range(11):
            shapes[f"{prefix}{expert}.gate_proj"] = (64, 32)
            shapes[f"{prefix}{expert}.up_proj"] = (64, 32)
            shapes[f"{prefix}{expert}.down_proj"] = (32, 64)
        source = self.write_modules(shapes)
        for target in TARGETS:
            out = self.convert(source, target, "--verify")
            manifest = self.checked_json((out / "prepack.json").read_text(), "manifest")
            found = {name: tuple(module["shape"]) for name, module in manifest["modules"].items()}
            self.assertEqual(found, shapes)
            weights = [n for n in harness.read_tensors(out) if n.endswith(".weight")]
            self.assertEqual(sorted(weights), sorted(name + ".weight" for name in shapes))

    def test_illegal_shapes_are_refused_with_the_rule(self):
        source = self.write_modules({"model.layers.0.mlp.up_proj": (48, 64)})
        self.assert_fails(
            5,
            ["model.layers.0.mlp.up_proj", "vllm-cpu/wna16: N = 48 is not a multiple of 32"],
            *("plan", source, "-t", "vllm-cpu"),
        )
        source = self.write_modules({"model.layers.0.mlp.up_proj": (64, 96)}, group_size=2)
        self.assert_fails(
            5,
            ["vllm-cpu/int4-w4a8: the group size = 2 is not a multiple of 4", "garbage"],
            *("plan", source, "-t", "vllm-cpu", "--scheme", "w4a8"),
        )
        self.assert_fails(
            5,
            ["onednn/w4a16, onednn/w4a8: the group size is not a multiple of 16"],
            *("plan", source, "-t", "onednn"),
        )

    def test_plan_says_what_the_runtime_would_do(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        plan = self.run_ok("plan", source, "-t", "vllm-cpu", "--scheme", "w4a8", "--json").stdout
        plan = self.checked_json(plan, "plan")
        choice = plan["choices"][plan["modules"][0]["choice"]]
        self.assertEqual(choice["scheme"]["name"], "w4a16")
        self.assertEqual(choice["computed_as"]["name"], "w4a8")
        self.assertIn("8-bit int per token dynamic", choice["note"])
        self.assertIn(
            {"cpu": "AMX", "kernel": "vllm-cpu/int4-w4a8",
             "remark": "8-bit activations although the checkpoint says 16"},
            choice["runtime"],
        )
        self.assertGreater(plan["memory_per_thread_bytes"], 0)
        text = self.run_ok("plan", source, "-t", "vllm-cpu").stdout
        self.assertIn("vLLM 0.32 itself would run, 7 modules, for w4a16 group 128", text)
        self.assertIn("vllm-cpu/wna16 runs on: AVX-512", text)


class Verify(harness.ToolTest):
    def convert_and_lose_source(self, name, target):
        """A packed folder whose source is no longer where the manifest says."""
        source = self.copy_checkpoint(name)
        out = self.convert(source, target)
        shutil.rmtree(source)
        return out

    def flip(self, path, offset, bit):
        data = bytearray(path.read_bytes())
        data[offset] ^= 1 << bit
        path.write_bytes(data)

    def test_any_flipped_bit_is_found_and_named(self):
        for target in TARGETS:
            clean = self.convert_and_lose_source("ct-w4a16-g32-asym", target)
            header, start = harness.read_header(clean / "model.safetensors")
            size = (clean / "model.safetensors").stat().st_size
            manifest = json.loads((clean / "prepack.json").read_text())
            cases = []
            for i, (name, info) in enumerate(sorted(header.items())):
                begin, end = info["data_offsets"]
                owner = name.rsplit(".", 1)[0] if name.rsplit(".", 1)[0] in manifest["modules"] else name
                cases.append((start + begin, i % 8, owner))
                cases.append((start + end - 1, (i + 3) % 8, owner))
                cases.append((start + (begin + end) // 2, (i + 5) % 8, owner))
            for offset in (0, 7, 8, 100, start - 1):  # length, JSON, padding
                cases.append((offset, offset % 8, "model.layers.0.mlp.down_proj"))
            self.assertLess(max(offset for offset, _, _ in cases), size)
            damaged = self.scratch / "damaged"
            shutil.copytree(clean, damaged)
            for offset, bit, owner in cases:
                with self.subTest(target=target, offset=offset, bit=bit):
                    self.flip(damaged / "model.safetensors", offset, bit)
                    result = self.run_tool("verify", damaged)
                    self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
                    self.assertIn(owner, result.stdout.split("\nintegrity")[-1])
                    self.flip(damaged / "model.safetensors", offset, bit)
            shutil.rmtree(damaged)

    def test_flipped_weight_fails_every_level_that_sees_it(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        for target in TARGETS:
            out = self.convert(source, target)
            header, start = harness.read_header(out / "model.safetensors")
            name = "model.layers.0.self_attn.k_proj"
            self.flip(out / "model.safetensors", start + header[name + ".weight"]["data_offsets"][0], 3)
            result = self.run_tool("verify", out, "--source", source, "--json")
            self.assertEqual(result.returncode, 1)
            report = self.checked_json(result.stdout, "verify")
            self.assertEqual(report["levels"]["integrity"]["state"], "failed")
            problems = report["levels"]["exactness"]["problems"]
            self.assertEqual([p["where"] for p in problems], [f"module {name}"])
            self.assertIn("1 codes differ", problems[0]["message"])
            self.assertIn("output channel 0, input channel 0", problems[0]["message"])
            exact = {m["module"]: m["exact"] for m in report["modules"]}
            self.assertEqual([m for m, e in exact.items() if not e], [name])

    def test_not_run_is_not_passed(self):
        out = self.convert_and_lose_source("ct-w4a16-g128-sym", "vllm-cpu")
        result = self.run_tool("verify", out, "--json")
        self.assertEqual(result.returncode, 6, result.stderr)
        report = self.checked_json(result.stdout, "verify")
        self.assertEqual(report["verdict"], "not run")
        self.assertEqual(report["levels"]["integrity"]["state"], "passed")
        self.assertEqual(report["levels"]["gemm"]["state"], "not run")
        self.assertIn("--source", report["levels"]["gemm"]["reason"])

    def test_source_is_found_where_it_lay(self):
        source = self.copy_checkpoint()
        out = self.convert(source, "vllm-cpu")
        manifest = json.loads((out / "prepack.json").read_text())
        self.assertEqual(manifest["source"]["path"], f"../{source.name}")
        result = self.run_ok("verify", out, "--json")
        report = self.checked_json(result.stdout, "verify")
        self.assertEqual(report["verdict"], "passed")

    def test_reference_engine_on_request(self):
        source = CHECKPOINTS / "ct-w4a16-channel-sym"
        out = self.convert(source, "zentorch")
        result = self.run_ok("verify", out, "--source", source, "--engine", "reference", "--json")
        report = self.checked_json(result.stdout, "verify")
        self.assertEqual(report["engine"], "reference")
        self.assertEqual(report["verdict"], "passed")

    def test_bar(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        out = self.convert(source, "vllm-cpu")
        result = self.run_tool("verify", out, "--source", source, "--min-sqnr", "90")
        self.assertEqual(result.returncode, 1)
        self.assertIn("end-to-end SQNR is too low", result.stdout)
        for bar in ("nan", "-1", "inf", "x"):
            self.assert_fails(2, ["--min-sqnr"], "verify", out, "--min-sqnr", bar)

    def test_another_source_fails(self):
        out = self.convert(CHECKPOINTS / "ct-w4a16-g128-sym", "vllm-cpu")
        other = CHECKPOINTS / "ct-w4a16-g32-asym"
        result = self.run_tool("verify", out, "--source", other)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("another shape or scheme", result.stdout)

    def test_files_that_do_not_belong(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        out = self.convert(source, "vllm-cpu")
        shutil.copy(source / "model.safetensors", out / "extra.safetensors")
        result = self.run_tool("verify", out)
        self.assertEqual(result.returncode, 1)
        self.assertIn("extra.safetensors", result.stdout)
        (out / "extra.safetensors").unlink()
        (out / "tokenizer.json").unlink()
        result = self.run_tool("verify", out)
        self.assertEqual(result.returncode, 1)
        self.assertIn("tokenizer.json: the file is missing", result.stdout)

    def test_damaged_manifest(self):
        out = self.convert(CHECKPOINTS / "ct-w4a16-g128-sym", "vllm-cpu")
        text = (out / "prepack.json").read_text()
        (out / "prepack.json").write_text(text.replace('"symmetric": true', '"symmetric": false', 1))
        self.assert_fails(3, ["prepack.json", "hash differs"], "verify", out)
        (out / "prepack.json").write_text(text[: len(text) // 2])
        self.assert_fails(3, ["prepack.json", "does not contain its own hash"], "verify", out)
        (out / "prepack.json").unlink()
        self.assert_fails(2, ["not a packed folder", "prepack convert"], "verify", out)


class Shell(harness.ToolTest):
    def test_inspect_text(self):
        out = self.convert(CHECKPOINTS / "ct-w4a16-g128-sym", "vllm-cpu")
        text = self.run_ok("inspect", out).stdout
        self.assertIn("packed folder, compressed-tensors, packed for vllm-cpu", text)
        self.assertIn("w4a16 group 128 symmetric", text)
        self.assert_fails(
            2, ["down_prj", "Did you mean model.layers.0.mlp.down_proj?"],
            *("inspect", out, "--module", "model.layers.0.mlp.down_prj"),
        )

    def test_closed_pipe_is_quiet(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        script = f"{TOOL} inspect --json {source} | head -c 1; exit ${{PIPESTATUS[0]}}"
        result = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, b""))

    def test_full_stdout_is_an_error(self):
        large = ["inspect", CHECKPOINTS / "ct-w4a16-g128-sym", "--json"]
        for command in (["targets"], large):
            with open("/dev/full", "w") as full:
                result = subprocess.run(
                    [TOOL, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
                )
            self.assertEqual(result.returncode, 4)
            self.assertIn("stdout: cannot write", result.stderr)

    def test_usage(self):
        self.assert_fails(2, ["--target"], "convert", "a", "-o", "b")
        self.assert_fails(2, ["convrt", "Did you mean convert?"], "convrt")
        self.assert_fails(2, ["subcommand is required"])
        self.assert_fails(2, ["--dtype"], "plan", "a", "-t", "vllm-cpu", "--dtype", "bf17")
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        self.assert_fails(
            2, ["unknown target", "vllm_cpu", "Did you mean vllm-cpu?"],
            *("plan", source, "-t", "vllm_cpu"),
        )
        for args in (["--help"], ["--version"], ["convert", "--help"]):
            self.assertEqual(self.run_ok(*args).stderr, "")
        self.assertIn("Exit codes", self.run_ok("--help").stdout)

    def test_quiet(self):
        source, out = CHECKPOINTS / "ct-w4a16-g128-sym", self.scratch / "out"
        result = self.run_ok("convert", source, "-o", out, "-t", "vllm-cpu", "-q", "--verify")
        self.assertEqual((result.stdout, result.stderr), ("", ""))

    def test_json_has_the_verdict(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        levels = {"integrity": "passed", "exactness": "passed", "gemm": "passed", "quality": "not run"}
        for target in ("vllm-cpu", "compressed-tensors"):
            args = ("convert", source, "-o", self.scratch / target, "-t", target, "--json")
            report = self.checked_json(self.run_ok(*args, "--verify").stdout, "convert")
            self.assertEqual(report["verification"], {"verdict": "passed", "levels": levels})
            report = self.checked_json(self.run_ok(*args, "--force").stdout, "convert")
            self.assertIsNone(report["verification"])

    def test_json_has_a_bad_verdict(self):
        """An output that is complete, and was damaged later."""
        args = ("convert", self.copy_checkpoint(), "-o", self.scratch / "out", "-t", "vllm-cpu", "--resume", "--json")
        self.run_ok(*args)
        harness.flip_weight(self.scratch / "out", "model.layers.0.mlp.down_proj")
        result = self.run_tool(*args, "--verify")
        self.assertEqual(result.returncode, 1, result.stderr)
        found = self.checked_json(result.stdout, "convert")["verification"]
        self.assertEqual(found["verdict"], "failed")
        self.assertEqual([found["levels"][level] for level in ("integrity", "exactness")], ["failed", "failed"])

    def test_isa(self):
        args = ("convert", CHECKPOINTS / "ct-w4a16-g128-sym", "-o", self.scratch / "o")
        self.assert_fails(
            2, ["PREPACK_ISA", "sse9"], *args, "-t", "vllm-cpu", env={"PREPACK_ISA": "sse9"}
        )
        for name in ("ct-w4a16-g128-sym", "ar-gptq-w4-asym"):
            self.assert_fails(
                2, ["PREPACK_ISA", "sse9"], "check", CHECKPOINTS / name, env={"PREPACK_ISA": "sse9"}
            )


if __name__ == "__main__":
    sys.exit(unittest.main())
