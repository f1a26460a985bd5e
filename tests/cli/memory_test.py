"""What verify, check and diff take of memory, whatever the shape of a module: --memory-limit."""

import json
import re
import resource
import unittest

import harness
import numpy
from harness import CHECKPOINTS

MODULE = "model.layers.0.mlp.up_proj"
STACK = 8 << 20
MIB = 1 << 20


def bf16(values):
    """The bytes of float32 numbers that bfloat16 holds, or that are cut to it."""
    return (values.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()


class Wide(harness.ToolTest):
    """Modules of few output channels and very many input channels."""

    def write(self, name, config, tensors):
        folder = self.scratch / name
        folder.mkdir()
        harness.copy_config_of_modules(config, folder)
        tensors = {f"{MODULE}.{part}": tensor for part, tensor in tensors.items()}
        (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        return folder

    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(20)

    def scales(self, *shape):
        return bf16(self.random.uniform(0.01, 0.02, shape))

    def w4a16(self, n, k, group=128):
        words = self.random.integers(0, 2**32, (n, k // 8), dtype=numpy.uint32)
        folder = self.write("w4a16", "ct-w4a16-g128-sym", {
            "weight_packed": ("I32", [n, k // 8], words.tobytes()),
            "weight_scale": ("BF16", [n, k // group], self.scales(n, k // group)),
            "weight_shape": ("I64", [2], numpy.array([n, k], dtype=numpy.int64).tobytes()),
        })
        config = (folder / "config.json").read_text()
        self.assertIn('"group_size": 128', config)
        config = config.replace('"group_size": 128', f'"group_size": {group}')
        (folder / "config.json").write_text(config)
        return folder

    def w8a8(self, n, k):
        codes = self.random.integers(-127, 128, (n, k), dtype=numpy.int8)
        return self.write("w8a8", "ct-w8a8-dynamic", {
            "weight": ("I8", [n, k], codes.tobytes()),
            "weight_scale": ("BF16", [n, 1], self.scales(n, 1)),
        })

    def fp8(self, n, k):
        codes = self.random.integers(0, 0x7F, (n, k), dtype=numpy.uint8)
        codes |= self.random.integers(0, 2, (n, k), dtype=numpy.uint8) << 7
        return self.write("fp8", "ct-fp8-dynamic", {
            "weight": ("F8_E4M3", [n, k], codes.tobytes()),
            "weight_scale": ("BF16", [n, 1], self.scales(n, 1)),
        })

    def gptq_in_activation_order(self, n, k):
        words = self.random.integers(0, 2**32, (k // 8, n), dtype=numpy.uint32)
        zeros = numpy.full((k // 128, n // 8), 0x77777777, dtype=numpy.uint32)
        groups = self.random.permutation(numpy.arange(k, dtype=numpy.int32) // 128)
        scales = self.random.uniform(0.01, 0.02, (k // 128, n)).astype(numpy.float16)
        return self.write("gptq", "gptqmodel-w4-actorder-g128", {
            "qweight": ("I32", [k // 8, n], words.tobytes()),
            "qzeros": ("I32", [k // 128, n // 8], zeros.tobytes()),
            "scales": ("F16", [k // 128, n], scales.tobytes()),
            "g_idx": ("I32", [k], groups.astype(numpy.int32).tobytes()),
        })

    def unquantized(self, n, k):
        values = self.random.normal(0, 0.02, (n, k))
        folder = self.write("float", "ct-w4a16-g128-sym",
                            {"weight": ("BF16", [n, k], bf16(values))})
        (folder / "config.json").write_text("{}")
        return folder

    @staticmethod
    def within(most, threads):
        def limit():  # of private memory that can be written, which is what no file is behind
            resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
            size = most + threads * STACK
            resource.setrlimit(resource.RLIMIT_DATA, (size, size))

        return limit

    def least(self, *args):
        """The bytes that a command asks for, at the least."""
        failed = self.assert_fails(
            2, ["--memory-limit", "with so little memory (found 1000000 bytes", "at least",
                "The page cache does not count"], *args, "--memory-limit", "1MB")
        return int(re.search(r"at least (\d+)", failed.stderr)[1])


@harness.not_with_sanitizers("they map terabytes themselves")
class AMillionInputChannels(Wide):
    N, K = 32, 1 << 20

    def check_verify(self, source):
        out = self.convert(source, "vllm-cpu")
        args = ("verify", out, "--source", source, "--engine", "reference")
        least = self.least(*args)
        self.assertLess(least, 200 * MIB)
        self.run_ok(
            *args, "--jobs", 8, "--memory-limit", least, "-q",
            preexec_fn=self.within(least + 8 * MIB, 8),
        )

    def check_reading(self, source, *others):
        for command in (("check", source), ("check", source, "--baseline", others[0]),
                        ("diff", source, others[0])):
            least = self.least(*command)
            self.assertLess(least, 64 * MIB)
            result = self.run_tool(
                *command, "--jobs", 8, "--memory-limit", least, "-q",
                preexec_fn=self.within(least + 8 * MIB, 8),
            )
            self.assertIn(result.returncode, (0, 1), result.stderr)

    def test_w4a16(self):
        source = self.w4a16(self.N, self.K)
        self.check_verify(source)
        self.check_reading(source, self.unquantized(self.N, self.K))

    def test_w8a8(self):
        source = self.w8a8(self.N, self.K)
        self.check_verify(source)
        self.check_reading(source, self.unquantized(self.N, self.K))

    def test_fp8(self):
        source = self.fp8(self.N, self.K)
        self.check_verify(source)
        self.check_reading(source, self.unquantized(self.N, self.K))


@harness.not_with_sanitizers("they map terabytes themselves")
class AMillionOutputChannels(Wide):
    def test_the_outputs_are_not_kept_at_once(self):
        source = self.w4a16(1 << 20, 32, group=32)
        for target, second in (("vllm-cpu", "unpacked weights"), ("onednn", "")):
            out = self.convert(source, target)
            result = self.run_ok(
                "verify", out, "--source", source, "--jobs", 2, "--json",
                preexec_fn=self.within(160 * MIB, 4),
            )
            gemm = json.loads(result.stdout)["modules"][0]["gemm"]
            self.assertIn("model of", gemm["implementation"])
            self.assertIn(second, gemm["second_implementation"])


@harness.not_with_sanitizers("they map terabytes themselves")
class ManyExperts(Wide):
    """A stack of experts takes no more memory than one of them."""

    def experts(self, count, n, k):
        folder = self.scratch / f"experts-{count}"
        folder.mkdir()
        harness.copy_config_of_modules("gpt-oss-mxfp4", folder)
        tensors = {}
        for name in ("gate_up_proj", "down_proj"):
            stem = f"model.layers.0.mlp.experts.{name}"
            blocks = self.random.integers(0, 256, (count, n, k // 32, 16), dtype=numpy.uint8)
            scales = self.random.integers(118, 126, (count, n, k // 32), dtype=numpy.uint8)
            tensors[f"{stem}_blocks"] = ("U8", [*blocks.shape], blocks.tobytes())
            tensors[f"{stem}_scales"] = ("U8", [*scales.shape], scales.tobytes())
            tensors[f"{stem}_bias"] = ("BF16", [count, n], bf16(self.random.normal(0, 1, (count, n))))
        (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        return folder

    def test_a_stack_is_packed_tile_by_tile_and_proved_expert_by_expert(self):
        source = self.experts(32, 1024, 1024)
        self.assertGreater((source / "model.safetensors").stat().st_size, 32 * MIB)
        out = self.scratch / "out"
        self.run_ok(
            "convert", source, "-o", out, "-t", "vllm-cpu", "--fuse", "--jobs", 2, "-q",
            preexec_fn=self.within(20 * MIB, 4),
        )
        module = harness.manifest(out)["modules"]["model.layers.0.mlp.experts.gate_up_proj"]
        self.assertEqual((module["experts"], module["shape"]), (32, [32 * 1024, 1024]))
        args = ("verify", out, "--source", source, "--engine", "reference")
        few = self.experts(2, 1024, 1024)
        one = self.convert(few, "vllm-cpu", "--fuse", name="few")
        least = self.least(*args)
        # Biases of all experts are read at once.
        self.assertLess(least, self.least("verify", one, "--source", few, "--engine", "reference") + 4 * MIB)
        self.run_ok(*args, "--jobs", 2, "--memory-limit", max(least, 64 * MIB), "-q",
                    preexec_fn=self.within(max(least, 64 * MIB) + 8 * MIB, 4))


class Slabs(Wide):
    """Modules just above what is multiplied at once."""

    N, K = 64, (1 << 16) + 512

    def test_every_target_multiplies_them_in_slabs(self):
        sources = (self.w4a16, self.w8a8, self.fp8, self.gptq_in_activation_order)
        for make in sources:
            source = make(self.N, self.K)
            for target in harness.TARGETS:
                out = self.convert(source, target, "--fallback", "dequantize",
                                   name=f"{source.name}-{target}")
                result = self.run_tool("verify", out, "--source", source, "--json")
                self.assertEqual(result.returncode, 0, result.stdout)

    def test_figures_depend_neither_on_threads_nor_on_the_limit(self):
        source = self.w8a8(self.N, self.K)
        baseline = self.unquantized(self.N, self.K)
        out = self.convert(source, "zentorch")
        args = ("verify", out, "--source", source, "--baseline", baseline, "--json")
        reports = {
            self.run_ok(*args, *more).stdout
            for more in (("--jobs", 1), ("--jobs", 4), ("--jobs", 4, "--memory-limit", "300MB"))
        }
        self.assertEqual(len(reports), 1)

    def test_groups_that_cannot_be_cut_are_not_multiplied(self):
        source = self.w4a16(self.N, 2056 * 32, group=2056)
        out = self.convert(source, "zentorch")
        result = self.run_tool("verify", out, "--source", source)
        self.assertEqual(result.returncode, 6, result.stdout)
        self.assertIn("not multiplied", result.stdout)
        self.assertIn("its groups cannot be cut into slabs", result.stdout)
        self.assertIn("65792 input channels in groups of 2056", result.stdout)

    def test_a_wrong_weight_of_any_slab_fails(self):
        source = self.w8a8(self.N, self.K)
        out = self.convert(source, "zentorch")
        record = harness.manifest(out)["modules"][MODULE]["parts"]["weight"]
        path = out / record["file"]
        for place in (0, self.K // 2, self.K - 1):
            original = path.read_bytes()
            wrong = bytearray(original)
            for channel in range(self.N):  # a code of each output channel, by half its range
                wrong[record["offset"] + channel * self.K + place] ^= 0x40
            path.write_bytes(wrong)
            result = self.run_tool("verify", out, "--source", source, "--skip",
                                   "integrity,exactness", "--json")
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertIn("the kernel SQNR ", result.stdout)
            path.write_bytes(original)


class Limits(harness.ToolTest):
    def test_a_limit_that_is_too_small_is_an_error_and_a_larger_one_changes_nothing(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        out = self.convert(source, "vllm-cpu")
        for command in (("verify", out, "--source", source), ("check", source),
                        ("diff", source, source)):
            texts = ["--memory-limit", "found 1000000 bytes", "at least"]
            self.assert_fails(2, texts, *command, "--memory-limit", "1MB")
            self.assert_fails(2, ["--memory-limit"], *command, "--memory-limit", "lots")
            self.assertEqual(
                self.run_ok(*command, "--json", "--memory-limit", "1GiB").stdout,
                self.run_ok(*command, "--json").stdout,
            )

    def test_convert_verifies_within_its_limit(self):
        source = CHECKPOINTS / "ct-w4a16-g128-sym"
        out = self.scratch / "out"
        args = ("convert", source, "-o", out, "-t", "vllm-cpu", "--verify", "--memory-limit")
        # Enough to convert, with what a sanitizer takes for itself, and too little to verify.
        self.assert_fails(2, ["cannot be verified with so little memory"], *args, "40MB")
        self.run_ok(*args, "200MB", "--force")


if __name__ == "__main__":
    unittest.main()
