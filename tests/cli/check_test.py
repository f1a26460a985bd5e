"""prepack check on real checkpoints and on copies that were damaged."""

import json
import shutil
import struct
import sys
import unittest
import xml.etree.ElementTree

import harness
from harness import CHECKPOINTS, W4A16

MODULE = "model.layers.0.mlp.down_proj"


class Check(harness.ToolTest):
    def damaged(self, change):
        """A copy of a real checkpoint whose tensors `change` has edited."""
        folder = self.copy_checkpoint()
        tensors = harness.read_tensors(folder)
        change(tensors)
        (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        return folder

    def check(self, code, *args):
        result = self.run_tool("check", *args, "--json")
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        report = self.checked_json(result.stdout, "check")
        self.assertEqual(report["exit_code"], code)
        return report

    def test_real_checkpoints_are_sound(self):
        for name in W4A16:
            with self.subTest(checkpoint=name):
                before = harness.snapshot(CHECKPOINTS / name)
                report = self.check(0, CHECKPOINTS / name, "--strict")
                self.assertEqual(harness.snapshot(CHECKPOINTS / name), before)
                self.assertEqual(report["verdict"], "sound")
                self.assertEqual(report["format"], "compressed-tensors")
                self.assertEqual(len(report["modules"]), 7)
                for module in report["modules"]:
                    n, k = module["shape"]
                    self.assertEqual(module["statistics"]["weights"], n * k)
                    self.assertEqual(module["statistics"]["distinct_codes"], 16)
                    self.assertLess(module["statistics"]["mean_shift"], 0.1)

    def test_text_output(self):
        result = self.run_ok("check", CHECKPOINTS / "ct-w4a16-g128-sym")
        self.assertIn("7 quantized modules", result.stdout)
        self.assertTrue(result.stdout.endswith("\nsound\n"), result.stdout)
        self.assertEqual(self.run_ok("check", CHECKPOINTS / W4A16[0], "-q").stdout, "")

    def test_headers_do_not_read_data(self):
        def damage(tensors):
            dtype, shape, data = tensors[MODULE + ".weight_scale"]
            tensors[MODULE + ".weight_scale"] = (dtype, shape, struct.pack("<H", 0x7F80) + data[2:])

        folder = self.damaged(damage)
        report = self.check(0, folder, "--headers")
        self.assertTrue(all(module["statistics"] is None for module in report["modules"]))
        report = self.check(1, folder)
        self.assertEqual(report["verdict"], "bad values")
        errors = [f for f in report["findings"] if f["severity"] == "error"]
        self.assertEqual(len(errors), 1)
        self.assertIn(MODULE + ".weight_scale", errors[0]["where"])
        read = [m["module"] for m in report["modules"] if m["statistics"] is not None]
        self.assertEqual(len(read), 6)
        result = self.run_tool("check", folder, "-q")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("error: ", result.stderr)

    def test_strict_turns_warnings_into_failure(self):
        def damage(tensors):
            dtype, shape, data = tensors[MODULE + ".weight_packed"]
            tensors[MODULE + ".weight_packed"] = (dtype, shape, b"\x88" * len(data))

        folder = self.damaged(damage)
        report = self.check(0, folder)
        self.assertEqual(report["verdict"], "warnings")
        self.assertEqual([f["id"] for f in report["findings"]], ["codes-constant"])
        self.check(1, folder, "--strict")
        result = self.run_tool("check", folder, "--strict", "-q")
        self.assertEqual(result.stdout, "")
        self.assertIn(MODULE, result.stderr)
        self.assertIn("1 warning\n", self.run_ok("check", folder).stdout)

    def test_junit(self):
        def damage(tensors):
            dtype, shape, data = tensors[MODULE + ".weight_packed"]
            tensors[MODULE + ".weight_packed"] = (dtype, shape, b"\x88" * len(data))

        folder = self.damaged(damage)
        path = self.scratch / "check.xml"
        for strict in ([], ["--strict"]):
            self.run_tool("check", folder, "--junit", path, *strict)
            root = xml.etree.ElementTree.parse(path).getroot()
            self.assertEqual(root.get("tests"), "8")
            failed = [c.get("name") for c in root.iter("testcase") if c.find("failure") is not None]
            self.assertEqual(failed, [MODULE] if strict else [])
            self.assertEqual(root.get("failures"), str(len(failed)))
        self.assertEqual([p.name for p in self.scratch.glob(".*")], [])
        self.assert_fails(4, ["missing"], "check", folder, "--junit", self.scratch / "missing" / "x")

    def test_malformed_and_unsupported(self):
        def damage(tensors):
            del tensors[MODULE + ".weight_scale"]

        report = self.check(3, self.damaged(damage), "--headers")
        self.assertEqual(report["verdict"], "malformed")
        self.assertIn(MODULE, report["findings"][0]["where"] + report["findings"][0]["message"])

        folder = self.copy_checkpoint("ct-w4a16-channel-sym")
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"]["quant_method"] = "unheard-of"
        (folder / "config.json").write_text(json.dumps(config))
        self.assertEqual(self.check(5, folder)["verdict"], "unsupported")

        folder = self.copy_checkpoint("ct-w4a16-g128-sharded")
        (folder / "model-00002-of-00003.safetensors").unlink()
        self.check(3, folder)
        packed = self.convert(CHECKPOINTS / "ct-w4a16-g128-sym", "vllm-cpu")
        self.assertEqual(self.check(5, packed)["findings"][0]["id"], "already-packed")

    def test_config_that_does_not_fit(self):
        folder = self.copy_checkpoint()
        config = json.loads((folder / "config.json").read_text())
        config["num_hidden_layers"] = 2
        config["intermediate_size"] = 1500
        (folder / "config.json").write_text(json.dumps(config))
        ids = {f["id"] for f in self.check(3, folder, "--headers")["findings"]}
        self.assertEqual(ids, {"layer-missing", "module-padded"})

    def test_missing_modules(self):
        layer = "model.layers.0."

        def layers(count, lacking):
            """The tensors of the only layer as those of several; one lacks a projection."""

            def change(tensors):
                first = {name: t for name, t in tensors.items() if name.startswith(layer)}
                for index in range(1, count):
                    for name, tensor in first.items():
                        tensors[f"model.layers.{index}." + name[len(layer) :]] = tensor
                for name in list(tensors):
                    if name.startswith(lacking + "."):
                        del tensors[name]

            shutil.rmtree(self.scratch / "source-ct-w4a16-g128-sym", ignore_errors=True)
            folder = self.damaged(change)
            config = json.loads((folder / "config.json").read_text())
            config["num_hidden_layers"] = count
            (folder / "config.json").write_text(json.dumps(config))
            return folder

        self.assertEqual(self.check(0, layers(4, "none"), "--headers")["verdict"], "sound")
        for block, name in (("mlp", "up_proj"), ("self_attn", "q_proj")):
            folder = layers(4, f"model.layers.3.{block}.{name}")
            report = self.check(3, folder, "--headers")
            self.assertEqual(
                [(f["id"], f["where"]) for f in report["findings"]],
                [("module-missing", f"model.layers.3.{block}")],
            )
            self.assertIn(f"lacks {name}, which 3 of 4 layers", report["findings"][0]["message"])
        report = self.check(0, layers(1, "model.layers.0.mlp.up_proj"), "--headers")
        self.assertEqual([f["id"] for f in report["findings"]], ["module-partner-missing"])

    def test_an_index_of_other_shards(self):
        folder = self.copy_checkpoint()
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}))
        (finding,) = self.check(0, folder)["findings"]
        self.assertEqual((finding["id"], finding["severity"]), ("index-stale", "warning"))
        out = self.convert(folder, "vllm-cpu")
        self.assertFalse((out / index.name).exists())
        self.run_ok("verify", out)

    def test_weights_that_are_not_read_have_no_other_finding(self):
        """What lies in them has whatever shape, which config.json says nothing about."""
        folder = self.copy_checkpoint("quark-uint4")
        sound = (folder / "config.json").read_text()
        for dtype, name in (("int3", "int3 per_group"), ("mx6", "OCP MX (mx6)")):
            (folder / "config.json").write_text(sound.replace('"uint4"', f'"{dtype}"'))
            report = self.check(5, folder)
            self.assertEqual(len(report["findings"]), 7)
            for finding in report["findings"]:
                self.assertEqual(finding["id"], "scheme-unsupported")
                self.assertIn(f"weights of this kind are not supported (found {name}", finding["message"])

    def test_scales_of_caches(self):
        """Parts together say what one run says."""

        def zero(tensors):
            for name in ("k_scale", "v_scale"):
                tensors[f"model.layers.0.self_attn.{name}"] = ("BF16", [1], bytes(2))

        folder = self.damaged(zero)
        report = self.check(1, folder)
        self.assertEqual([finding["id"] for finding in report["findings"]],
                         ["cache-scale-bad", "cache-scale-bad", "cache-undeclared"])
        self.assertEqual([f["id"] for f in self.check(0, folder, "--headers")["findings"]], ["cache-undeclared"])
        for part in ("1/2", "2/2"):
            self.run_ok("check", folder, "--part", part, "--report", self.scratch / f"{part[0]}.json", "-q")
        merged = self.run_tool("check", folder, "--merge", self.scratch / "1.json", self.scratch / "2.json", "--json")
        self.assertEqual(merged.stdout, self.run_tool("check", folder, "--json").stdout)

    def test_values_that_are_not_quantized(self):
        name = "model.layers.0.input_layernorm.weight"

        def damage(tensors):
            dtype, shape, data = tensors[name]
            tensors[name] = (dtype, shape, data[:-2] + struct.pack("<H", 0x7FC0))

        folder = self.damaged(damage)
        self.check(0, folder, "--headers", "--strict")
        report = self.check(1, folder)
        self.assertEqual([f["id"] for f in report["findings"]], ["value-not-finite"])
        self.assertIn(name, report["findings"][0]["where"])

    def test_usage(self):
        result = self.run_tool("check", CHECKPOINTS / W4A16[0], "--headers", "--baseline", "x")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(self.run_tool("check", self.scratch / "none").returncode, 4)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
