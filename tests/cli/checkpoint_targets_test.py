"""Checkpoints converted into other checkpoints: decoded by hand, they hold the numbers of their sources.

The decoders (checkpoint_decoders.py) share no code with prepack. fixtures/truth has what the writers' own decoders made
of the sources. Where prepack refuses a pair, it names the rule of the target's format.

`checkpoint_targets_test.py --update` writes the table of sources and targets into docs/checkpoint-targets.md.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
import checkpoint_decoders as decoders  # noqa: E402
from checkpoint_kinds import KINDS, table  # noqa: E402
from decode import Bad, Unclear, read_file  # noqa: E402
from harness import CHECKPOINT_TARGETS, CHECKPOINTS, ROOT, TOOL, read_tensors  # noqa: E402
from seeds import bf16, from_bf16  # noqa: E402

PAGE = ROOT / "docs" / "checkpoint-targets.md"
BEGIN, END = "<!-- table: written by tests/cli/checkpoint_targets_test.py --update -->", "<!-- end of the table -->"
TRUTH = ROOT / "fixtures" / "truth"
# The same numbers in other layouts.
TRUTH_OF = {"awq-gemv-g128": "awq-gemm-g128", "awq-gemvfast-g128": "awq-gemm-g128"}
# Sources that these decoders do not read: other formats than any target's, or keys that no target writes.
UNREAD = {
    "awq-gemv-g128", "awq-gemvfast-g128", "ct-nested-moe", "fbgemm-fp8", "fp8-deepseek-v4",
    "fp8-fused-experts-transposed", "fp8-ue8m0", "gptqmodel-fp8-block", "gptqmodel-fp8-dynamic", "gptqmodel-fp8-row",
    "gptqmodel-fp8-tensor", "gptqmodel-smollm2-awq-g64", "hf-fp8-stacked-scales", "hf-fp8-static",
    "modelopt-hf-quant-config", "mxfp8-minimax", "quark-fp8", "quark-fp8-channel", "quark-mixed", "quark-mxfp4",
    "quark-nvfp4", "quark-uint4", "quark-int4-order", "quark-int8", "quark-int8-dynamic", "quark-integers",
    "quark-padded", "quark-first", "quark-awq", "quark-fp8-int4", "ar-model-free-w4-asym", "ar-old-model-free-w4-asym",
}  # fmt: skip

# Scales that the source's format divides by, and the target's multiplies with, or the other way round: their
# reciprocals are rounded to f32, once.
CT = {"compressed-tensors", "compressed-tensors-0.17"}
RECIPROCALS = {
    "gptqmodel-fp8-block": CT | {"modelopt"}, "gptqmodel-fp8-dynamic": CT, "gptqmodel-fp8-row": CT,
    "gptqmodel-fp8-tensor": CT, "ct-nvfp4": {"modelopt"}, "ct-nvfp4a16": {"modelopt"},
    "modelopt-nvfp4-gpt-oss": CT,
}  # fmt: skip
# The one scale of these becomes that of every channel.
SINGLE_SCALES = {"quark-integers": "self_attn.k_proj", "quark-first": "mlp.gate_proj"}
EXACT, BY_A_ROUNDING, BF16 = "exact", "reciprocals", "rounded"

# What else differs after the way back to the source's own format.
NOT_GEMM = "AWQ is written as GEMM only"
SINGLE = "stacked experts are written one by one"
BACK_OTHERWISE = {
    "awq-gemv-g128": NOT_GEMM,
    "awq-gemvfast-g128": NOT_GEMM,
    "fp8-fused-experts": SINGLE,
    "fp8-fused-experts-transposed": SINGLE,
    "hf-fp8-stacked-scales": SINGLE,
    "modelopt-nvfp4-gpt-oss": SINGLE,
    "quark-awq": "codes are written unsigned, and in AWQ's order",
    "hf-fp8-static": "a copy of the weights under Mistral's names is not written",
}
# Sources that their own format as it is written here cannot hold, and the beginning of the reason.
NO_WAY_BACK = {
    "ct-old-actorder-group-g128": "the module has activation order",
    "fp8-deepseek-v4": "the weights are FP4",
    "gptqmodel-fp8-block": "activations are none",
    "gptqmodel-fp8-dynamic": "activations are none",
    "gptqmodel-fp8-tensor": "activations are none",
    "gptqmodel-fp8-row": "the scales are per channel",
    "modelopt-mixed-blocks": "activations are 8-bit float per group of 128 dynamic",
}


def truth_of(name):
    """Module → (first, last) 16 rows."""
    path = TRUTH / f"{TRUTH_OF.get(name, name)}.safetensors"
    found = {}
    for tensor, value in read_file(path).items():
        module, _, end = tensor.rpartition(".")
        found.setdefault(module, {})[end] = decoders.array(value)
    return {module: (ends["rows_first16"], ends["rows_last16"]) for module, ends in found.items()}


def named(weights, module, interleaved):
    """(weight, modules it is made of) by its name in the source, where experts may have been stacked."""
    if module in weights:
        return weights[module], [module]
    stacked, _, expert = module.rpartition(".")
    parent, _, leaf = stacked.rpartition(".")
    if leaf != "gate_up_proj":
        one = f"{parent}.{expert}.{leaf}"
        return weights.get(one), [one]
    parts = [f"{parent}.{expert}.{part}" for part in ("gate_proj", "up_proj")]
    if any(part not in weights for part in parts):
        return None, parts
    gate, up = (weights[part] for part in parts)
    if interleaved:  # gpt-oss has a row of gate, a row of up, and so on
        return numpy.stack([gate, up], 1).reshape(-1, gate.shape[1]), parts
    return numpy.concatenate([gate, up]), parts


def same(found, expected):
    found = numpy.ascontiguousarray(found, numpy.float32)
    expected = numpy.ascontiguousarray(expected, numpy.float32)
    return found.shape == expected.shape and (found.view(numpy.uint32) == expected.view(numpy.uint32)).all()


def close(found, expected):
    return found.shape == expected.shape and (numpy.abs(found - expected) <= 2.0**-22 * numpy.abs(expected)).all()


def rounded(values):
    return from_bf16(bf16(values).ravel()).reshape(values.shape)


def differences(weights, truth, equal=same, interleaved=False):
    """(what the decoded weights have otherwise than the truth, the modules compared)"""
    wrong, seen = [], set()
    for module, (first, last) in truth.items():
        weight, parts = named(weights, module, interleaved)
        seen |= set(parts)
        if weight is None:
            wrong.append(f"{module} is missing")
        elif not (equal(weight[:16], first) and equal(weight[-16:], last)):
            wrong.append(f"{module} has other weights")
    return wrong, seen


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)


def convert(source, out, target):
    return run("convert", source, "-o", out, "--target", target, "--no-flush", "-q", "--fallback", "error", "-j", "1")


def own_target(folder):
    """The target that writes the format of a checkpoint; None: none does."""
    try:
        _, config = decoders.quantization_of(folder)
    except Bad:
        return None
    method = (config or {}).get("quant_method")
    if method == "gptq":
        return "gptq-v2" if config.get("checkpoint_format") == "gptq_v2" else "gptq"
    if method == "auto-round":
        own = {
            "auto_round:auto_gptq": "auto-round" if config["sym"] else None,  # asymmetric, it is not written
            "auto_round:auto_awq": "auto-round-awq", "auto_round:gptqmodel": "auto-round-v2",
        }  # fmt: skip
        return own.get(config["packing_format"])
    return method if method in CHECKPOINT_TARGETS else None


def refusal(stderr):
    """Why a module has no place: "awq/gemm: the module has …"; empty: the error says something else."""
    return (re.search(r"cannot hold it: (.*?)\. --fallback dequantize", stderr) or [None, ""])[1]


@dataclasses.dataclass
class Pair:
    """One source and one target: `cell` of the table, or the `rule` that forbids it, and what is `wrong`."""

    name: str
    target: str
    scratch: pathlib.Path
    cell: str = ""
    rule: str = ""
    wrong: list = dataclasses.field(default_factory=list)

    def judge(self):
        self.source, self.out = CHECKPOINTS / self.name, self.scratch / f"{self.name}-to-{self.target}"
        done = convert(self.source, self.out, self.target)
        if done.returncode:
            self.rule = refusal(done.stderr)
            if done.returncode != 5 or not self.rule:
                self.wrong.append(f"convert ends with {done.returncode}: {done.stderr.strip()[:300]}")
            return self
        self.decode()
        done = run("verify", self.out, "--source", self.source, "-j", "1")
        if done.returncode:
            self.wrong.append(f"verify ends with {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
        self.check()
        self.back()
        return self

    def decode(self):
        truth, stored = truth_of(self.name), read_tensors(self.source)
        try:
            model, _ = decoders.quantization_of(self.out)
            _, weights, rest = decoders.decode(self.out)
        except (Bad, Unclear) as error:
            self.wrong.append(f"no loader takes it: {error}")
            return
        is_bf16 = self.target == "bf16"
        equal, self.cell = same, EXACT
        if is_bf16:
            equal, self.cell = (lambda found, expected: same(found, rounded(expected))), BF16
        elif self.target in RECIPROCALS.get(self.name, ()):
            equal, self.cell = close, BY_A_ROUNDING
        wrong, seen = differences(weights, truth, equal, model.get("model_type") == "gpt_oss")
        self.wrong += wrong[:3]
        if not is_bf16 and set(weights) - seen:
            self.wrong.append(f"{sorted(set(weights) - seen)} are not in the source")
        for tensor, (dtype, shape, data) in rest.items():
            was = stored.get(tensor)
            if was is None or was[0] not in ("BF16", "F16", "F32"):
                continue
            kept = (dtype, list(shape), data) == (was[0], list(was[1]), was[2])
            if is_bf16 and dtype != was[0]:
                kept = same(decoders.floats((dtype, shape, data)), rounded(decoders.floats(was)))
            self.wrong += [] if kept else [f"{tensor} is not that of the source"]

    def check(self):
        def findings(folder):
            text = run("check", "--strict", "--json", folder).stdout
            return {(f["id"], f["where"]) for f in json.loads(text)["findings"] if f["severity"] != "info"}

        # A model in bf16 is not quantized, and check says so.
        expected = {("config-missing", "config.json")} if self.target == "bf16" else set()
        if self.name in SINGLE_SCALES:
            expected |= {("scale-constant", f"model.layers.0.{SINGLE_SCALES[self.name]}")}
        more = sorted(findings(self.out) - findings(self.source) - expected)
        self.wrong += [f"check finds {len(more)} more, first {more[0]}"] if more else []

    def back(self):
        """To the format of the source: the bytes of its tensors."""
        own = own_target(self.source)
        if own is None or self.target == "bf16":
            return
        again = self.scratch / f"{self.out.name}-back"
        done = convert(self.out, again, own)
        if done.returncode:
            rule = NO_WAY_BACK.get(self.name)
            if own == "auto-round" and self.forgets_symmetry():
                rule = "the weights are asymmetric"
            if f": {rule}" not in f": {refusal(done.stderr)}":
                self.wrong.append(f"back to {own} ends with {done.returncode}: {done.stderr[:300]}")
            return
        if self.name in NO_WAY_BACK:
            self.wrong.append(f"back to {own} is possible")
        first, last = read_tensors(self.source), read_tensors(again)
        found = {}
        for tensor in sorted(set(first) | set(last)):
            what = self.changed(tensor.rpartition(".")[2], first.get(tensor), last.get(tensor))
            if what:
                found.setdefault((tensor.rpartition(".")[2], what), []).append(tensor)
        expected = self.name in BACK_OTHERWISE
        if expected and not found:
            self.wrong.append(f"back to {own} nothing differs")
        if not expected:
            self.wrong += [f"back to {own}: {len(names)} {part} {what}" for (part, what), names in found.items()]

    def forgets_symmetry(self):
        """AWQ says of all checkpoints that they have zero points: who reads it cannot know that they are all alike."""
        return self.target in ("awq", "auto-round-awq")

    def changed(self, part, first, last):
        """What is other than in the source, and not to be expected."""
        if first is None:
            return None if self.forgets_symmetry() and part == "weight_zero_point" else "extra"
        if last is None:
            return "missing"
        if first[0] != last[0]:
            # A scale in a wider type, or a power of two in another.
            as_wide = "scale" in part and same(decoders.scales(first).ravel(), decoders.scales(last).ravel())
            return None if as_wide else f"{last[0]} for {first[0]}"
        if list(first[1]) != list(last[1]):
            return f"{last[1]} for {first[1]}"
        if first[2] == last[2]:
            return None
        twice = self.target in RECIPROCALS.get(self.name, ()) and part.endswith("global_scale")
        return None if twice and close(decoders.floats(last), decoders.floats(first)) else "other bytes"


def judge_all(names, targets):
    with tempfile.TemporaryDirectory(prefix="prepack-pairs-") as folder:
        scratch = pathlib.Path(folder)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(Pair(name, target, scratch).judge) for name in names for target in targets]
            return [job.result() for job in jobs]


def all_sources():
    return sorted(folder.name for folder in CHECKPOINTS.iterdir())


def page_with(text):
    """The page with this table."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


class DecodersTest(unittest.TestCase):
    """The decoders themselves, on what the writers left."""

    def test_they_decode_what_the_writers_do(self):
        read = 0
        for name in all_sources():
            if name in UNREAD:
                continue
            with self.subTest(name):
                truth = truth_of(name)
                self.assertTrue(truth)
                self.assertEqual([], differences(decoders.decode(CHECKPOINTS / name, routers=False)[1], truth)[0])
                read += 1
        self.assertGreater(read, 50)


class TargetsTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.pairs = judge_all(all_sources(), CHECKPOINT_TARGETS)

    def test_every_pair_is_exact_or_refused_by_a_rule(self):
        wrong = [f"{pair.name} to {pair.target}: {what}" for pair in self.pairs for what in pair.wrong]
        self.assertEqual([], wrong)

    def test_most_pairs_of_a_kind_with_a_target_are_possible(self):
        """Nothing is refused that was not before: the table would say so, and so does this."""
        self.assertEqual(len(all_sources()) * len(CHECKPOINT_TARGETS), len(self.pairs))
        self.assertGreater(sum(not pair.rule for pair in self.pairs), 400)
        self.assertEqual([], [pair.name for pair in self.pairs if pair.rule and pair.target == "bf16"])

    def test_every_source_is_in_one_kind(self):
        self.assertEqual(all_sources(), sorted(name for _, names in KINDS for name in names))

    def test_the_page_has_this_table(self):
        self.assertEqual(PAGE.read_text(), page_with(table(self.pairs, CHECKPOINT_TARGETS)))


if __name__ == "__main__":
    if "--update" in sys.argv:
        found = judge_all(all_sources(), CHECKPOINT_TARGETS)
        print("\n".join(f"{p.name} to {p.target}: {w}" for p in found for w in p.wrong))
        PAGE.write_text(page_with(table(found, CHECKPOINT_TARGETS)))
    else:
        unittest.main()
