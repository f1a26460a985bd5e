"""--onednn-form: in which form 8-bit weights for oneDNN are written."""

import json
import shutil
import subprocess
import sys
import unittest

import jsonschema

import harness
from harness import CHECKPOINTS, TOOL

DYNAMIC = CHECKPOINTS / "ct-w8a8-dynamic"
STATIC = CHECKPOINTS / "ct-w8a8-static"
ASYMMETRIC = CHECKPOINTS / "ct-w8a8-asym-act"
# oneDNN then asks for the same on every CPU that has AVX2.
AS_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2"}


def transposed(data, n, k):
    """The bytes of an [N, K] matrix in the order [K, N]."""
    return b"".join(data[column::k] for column in range(k))


class OneDnnForm(harness.ToolTest):
    def manifest(self, folder):
        return json.loads((folder / "prepack.json").read_text())

    def check_verified(self, out, source):
        """The bytes are right; whether the GEMM level runs depends on the form and on the CPU."""
        result = self.run_tool("verify", out, "--source", source, "--json")
        self.assertIn(result.returncode, (0, 6), result.stderr)
        levels = json.loads(result.stdout)["levels"]
        self.assertEqual(levels["integrity"]["state"], "passed")
        self.assertEqual(levels["exactness"]["state"], "passed")

    def check_plain(self, out, source):
        """Every packed module is the source's weights, transposed and nothing else."""
        packed, stored = harness.read_tensors(out), harness.read_tensors(source)
        modules = self.manifest(out)["modules"]
        self.assertTrue(modules)
        for name, module in modules.items():
            n, k = module["shape"]
            desc = module["memory_descriptor"]
            self.assertEqual(desc["name"], "ab")
            self.assertEqual((desc["dims"], desc["strides"]), ([k, n], [n, 1]))
            self.assertFalse(desc["s8s8_compensation"] or desc["zero_point_compensation"])
            dtype, shape, data = packed[name + ".weight"]
            self.assertEqual((dtype, shape), ("U8", [n * k]))
            self.assertEqual(data, transposed(stored[name + ".weight"][2], n, k))

    def test_blocked_is_the_default(self):
        default = self.convert(DYNAMIC, "onednn", name="default")
        blocked = self.convert(DYNAMIC, "onednn", "--onednn-form", "blocked", name="blocked")
        self.assertEqual(
            (default / "prepack.json").read_bytes(), (blocked / "prepack.json").read_bytes()
        )
        for module in self.manifest(default)["modules"].values():
            self.assertEqual(module["memory_descriptor"]["name"], "BA16a64b4a")
            self.assertTrue(module["memory_descriptor"]["s8s8_compensation"])
            self.assertNotIn("onednn", module)
        self.check_verified(default, DYNAMIC)

    def test_plain(self):
        for source in (DYNAMIC, STATIC, ASYMMETRIC):
            with self.subTest(source=source.name):
                out = self.convert(source, "onednn", "--onednn-form", "plain")
                self.check_plain(out, source)
                for module in self.manifest(out)["modules"].values():
                    self.assertNotIn("onednn", module)
                self.check_verified(out, source)

    @harness.needs_onednn
    def test_native_with_avx2_is_plain_and_says_who_asked_for_it(self):
        schema = json.loads((harness.ROOT / "schemas/manifest.schema.json").read_text())
        for source, reference in ((DYNAMIC, False), (STATIC, True)):
            with self.subTest(source=source.name):
                out = self.convert(source, "onednn", "--onednn-form", "native", env=AS_AVX2)
                self.check_plain(out, source)
                for module in self.manifest(out)["modules"].values():
                    origin = module["onednn"]
                    jsonschema.validate(origin, {"$defs": schema["$defs"], **schema["$defs"]["onednn"]})
                    self.assertRegex(origin["version"], r"^3\.\d+\.\d+$")
                    self.assertRegex(origin["hash"], "^([0-9a-f]{40}|N/A)$")  # none in a source package
                    self.assertEqual((origin["isa"], origin["probe_m"]), ("0x7", 128))
                    self.assertEqual(origin["implementation"].startswith("ref"), reference)
                self.check_verified(out, source)

    @harness.needs_onednn
    def test_native_on_this_machine(self):
        out = self.convert(DYNAMIC, "onednn", "--onednn-form", "native")
        self.check_verified(out, DYNAMIC)

    def test_plan_counts_the_bytes_of_the_form(self):
        for form, factor in (("plain", 0), ("blocked", 4)):
            plan = json.loads(
                self.run_ok("plan", DYNAMIC, "-t", "onednn", "--onednn-form", form, "--json").stdout
            )
            for module in plan["modules"]:
                if module["layout"] != "onednn/w8a8":
                    continue
                n, k = (module["shape"] if factor == 0 else [-(-d // 64) * 64 for d in module["shape"]])
                weight = next(p for p in plan["choices"][module["choice"]]["parts"] if p["name"] == "weight")
                self.assertEqual(weight["shape"], [n * k + factor * n])

    @harness.needs_onednn
    def test_plan_warns_of_a_reference_implementation_only_when_it_asks(self):
        warning = "has only a reference implementation for this on this machine (ref_int8:any)"
        for source, form, expected in (
            (STATIC, "native", True),
            (STATIC, "plain", False),
            (STATIC, "blocked", False),
            (DYNAMIC, "native", False),
        ):
            with self.subTest(source=source.name, form=form):
                text = self.run_ok(
                    "plan", source, "-t", "onednn", "--onednn-form", form, env=AS_AVX2
                ).stdout
                self.assertEqual(warning in text, expected, text)

    def test_other_weights_have_one_form(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        out = self.convert(source, "onednn", "--onednn-form", "native")
        for module in self.manifest(out)["modules"].values():
            self.assertNotIn("onednn", module)
            self.assertNotIn("memory_descriptor", module)

    def test_usage(self):
        self.assert_fails(
            2, ["--onednn-form"], "plan", DYNAMIC, "-t", "onednn", "--onednn-form", "amx"
        )
        self.assert_fails(
            2,
            ["--onednn-form", "found --target vllm-cpu, expected --target onednn"],
            *("plan", DYNAMIC, "-t", "vllm-cpu", "--onednn-form", "plain"),
        )

    @harness.needs_onednn
    def test_slow_primitives_are_left_to_the_model(self):
        """With AVX2, oneDNN has only its reference implementation for weights of 4 bits and activations of 8."""
        out = self.convert(CHECKPOINTS / "ct-w4a8", "onednn")
        report = json.loads(self.run_ok("verify", out, "--json", env=AS_AVX2).stdout)
        notes = report["levels"]["gemm"]["notes"]
        self.assertEqual(len(notes), len(report["modules"]))
        for note in notes:
            self.assertRegex(note["message"], r"^onednn [\d.]+: .* it has only its reference implementation")
        for module in report["modules"]:
            self.assertEqual(module["gemm"]["implementation"], "model of onednn/w4a8")

    @harness.needs_onednn_module
    def test_without_the_module_of_onednn(self):
        alone = self.scratch / "alone"
        alone.mkdir()
        shutil.copy(TOOL, alone)
        run = [alone / "prepack", "convert", DYNAMIC, "-o", self.scratch / "out", "-t", "onednn"]
        result = subprocess.run(
            [*run, "--onednn-form", "native"], capture_output=True, text=True, check=False
        )
        self.assertEqual(result.returncode, 6, result.stderr)
        for text in (
            "module model.layers.0.",
            "prepack_onednn.so",
            "cannot be loaded",
            "or choose --onednn-form blocked or plain",
        ):
            self.assertIn(text, result.stderr)
        self.assertFalse((self.scratch / "out").exists())
        for form in ("blocked", "plain"):
            subprocess.run([*run, "--force", "--onednn-form", form], capture_output=True, check=True)


if __name__ == "__main__":
    sys.exit(unittest.main())
