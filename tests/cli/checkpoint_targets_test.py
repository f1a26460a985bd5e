"""Checkpoints converted into other checkpoints: decoded by hand, they hold the numbers of their sources.

The decoders (checkpoint_decoders.py) share no code with prepack. fixtures/truth has what the writers' own decoders made
of the sources. Where prepack refuses a pair, it names the rule of the target's format.

`checkpoint_targets_test.py --table FILE` writes the table of sources and targets.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
import checkpoint_decoders as decoders  # noqa: E402
from decode import Bad, Unclear, read_file  # noqa: E402
from harness import CHECKPOINTS, ROOT, TOOL, read_tensors  # noqa: E402
from seeds import bf16, from_bf16  # noqa: E402

TRUTH = ROOT / "fixtures" / "truth"
TARGETS = ("compressed-tensors", "gptq", "gptq-v2", "awq", "auto-round", "auto-round-awq", "fp8", "modelopt", "mxfp4",
           "bf16")  # fmt: skip
# Sources that these decoders do not read: other formats than any target's, or keys that no target writes.
UNREAD = {
    "awq-gemv-g128", "awq-gemvfast-g128", "ct-nested-moe", "fbgemm-fp8", "fp8-deepseek-v4",
    "fp8-fused-experts-transposed", "fp8-ue8m0", "gptqmodel-fp8-block", "gptqmodel-fp8-dynamic", "gptqmodel-fp8-row",
    "gptqmodel-fp8-tensor", "gptqmodel-smollm2-awq-g64", "hf-fp8-stacked-scales", "hf-fp8-static",
    "modelopt-hf-quant-config", "mxfp8-minimax", "quark-fp8", "quark-fp8-channel", "quark-mixed", "quark-mxfp4",
    "quark-nvfp4", "ar-model-free-w4-asym", "ar-old-model-free-w4-asym",
}  # fmt: skip


def truth_of(name):
    """Module → (first, last) 16 rows; empty: not known."""
    path = TRUTH / f"{name}.safetensors"
    if not path.exists():
        return {}
    found = {}
    for tensor, value in read_file(path).items():
        module, _, end = tensor.rpartition(".")
        found.setdefault(module, {})[end] = decoders.array(value)
    return {module: (ends["rows_first16"], ends["rows_last16"]) for module, ends in found.items()}


def named(weights, module):
    """A module by its name in the source, where experts may have been stacked."""
    if module in weights:
        return weights[module]
    stacked, _, expert = module.rpartition(".")
    parent, _, leaf = stacked.rpartition(".")
    if leaf == "gate_up_proj" and f"{parent}.{expert}.up_proj" in weights:
        return numpy.concatenate([weights[f"{parent}.{expert}.{part}"] for part in ("gate_proj", "up_proj")])
    return weights.get(f"{parent}.{expert}.{leaf}")


def same(found, expected):
    found = numpy.ascontiguousarray(found, numpy.float32)
    return found.shape == expected.shape and (found.view(numpy.uint32) == expected.view(numpy.uint32)).all()


def rounded(values):
    return from_bf16(bf16(values).ravel()).reshape(values.shape)


def differences(weights, truth, of=lambda values: values):
    """What the decoded weights have otherwise than the truth."""
    wrong = []
    for module, (first, last) in truth.items():
        weight = named(weights, module)
        if weight is None:
            wrong.append(f"{module} is missing")
        elif not (same(weight[:16], of(first)) and same(weight[-16:], of(last))):
            wrong.append(f"{module} has other weights")
    return wrong


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)


def known_targets():
    """Those of this build."""
    source = CHECKPOINTS / "ct-w4a16-g128-sym"
    return [target for target in TARGETS if run("plan", source, "--target", target).returncode != 2]


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
        return {"auto_round:auto_gptq": "auto-round", "auto_round:auto_awq": "auto-round-awq"}.get(config["packing_format"])
    return method if method in TARGETS else None


def rule(stderr):
    """The reason in an error line, without the module and the advice."""
    text = stderr.strip().removeprefix("error: ").split(". `prepack targets`")[0]
    return text.partition("of this checkpoint: ")[2] or text


class Pair:
    """One source and one target: `cell` of the table, and what is `wrong`."""

    def __init__(self, name, target, scratch):
        self.name, self.target, self.scratch = name, target, scratch
        self.source, self.out = CHECKPOINTS / name, scratch / f"{name}-to-{target}"
        self.cell, self.wrong = None, []

    def judge(self):
        done = run("convert", self.source, "-o", self.out, "--target", self.target, "--no-flush", "-q", "--fallback",
                   "error", "-j", "1")  # fmt: skip
        if done.returncode:
            if done.returncode != 5 or len(rule(done.stderr)) < 10:
                self.wrong.append(f"convert ends with {done.returncode}: {done.stderr.strip()[:300]}")
            self.cell = rule(done.stderr)
            return self
        self.cell = "exact"
        self.decode()
        done = run("verify", self.out, "--source", self.source, "-j", "1")
        if done.returncode:
            lines = [x for x in (done.stdout + done.stderr).splitlines() if "passed" not in x]
            self.wrong.append(f"verify ends with {done.returncode}: {' | '.join(lines)[:300]}")
        self.check()
        self.back()
        return self

    def decode(self):
        truth = truth_of(self.name)
        try:
            _, weights, rest = decoders.decode(self.out)
        except (Bad, Unclear) as error:
            self.wrong.append(f"no loader takes it: {error}")
            return
        wrong = differences(weights, truth)
        if self.target == "bf16" and wrong:
            wrong, self.cell = differences(weights, truth, rounded), "rounded once to bf16"
        self.wrong += wrong[:3]
        stored = read_tensors(self.source)
        for tensor, (dtype, shape, data) in rest.items():
            if tensor in stored and dtype in ("BF16", "F16", "F32"):
                kept = (dtype, list(shape), data) == (stored[tensor][0], list(stored[tensor][1]), stored[tensor][2])
                self.wrong += [] if kept else [f"{tensor} is not that of the source"]

    def check(self):
        def findings(folder):
            text = run("check", "--strict", "--json", folder).stdout
            return {(f["id"], f["where"]) for f in json.loads(text)["findings"] if f["severity"] != "info"}

        try:
            more = sorted(findings(self.out) - findings(self.source))
        except (ValueError, KeyError) as error:
            self.wrong.append(f"check prints no document: {error}")
            return
        self.wrong += [f"check finds {len(more)} more, first {more[0]}"] if more else []

    def back(self):
        """To the format of the source: the bytes of its tensors."""
        own = own_target(self.source)
        if own is None:
            return
        again = self.scratch / f"{self.out.name}-back"
        done = run("convert", self.out, "-o", again, "--target", own, "--no-flush", "-q", "--fallback", "error", "-j", "1")
        if done.returncode:
            if self.target != "bf16":
                self.wrong.append(f"back to {own} ends with {done.returncode}: {rule(done.stderr)[:200]}")
            return
        first, last = read_tensors(self.source), read_tensors(again)
        kinds = {}
        for tensor in sorted(set(first) | set(last)):
            a, b = first.get(tensor), last.get(tensor)
            if a is None or b is None:
                what = "missing" if b is None else "extra"
            elif a[0] != b[0]:
                what = f"{b[0]} for {a[0]}"
            elif list(a[1]) != list(b[1]):
                what = f"{b[1]} for {a[1]}"
            else:
                what = None if a[2] == b[2] else "other bytes"
            if what:
                kinds.setdefault((tensor.rpartition(".")[2], what), []).append(tensor)
        self.wrong += [f"back to {own}: {len(names)} {part} {what}" for (part, what), names in sorted(kinds.items())]


def judge_all(names, targets):
    with tempfile.TemporaryDirectory(prefix="prepack-pairs-") as folder:
        scratch = pathlib.Path(folder)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(Pair(name, target, scratch).judge) for name in names for target in targets]
            return [job.result() for job in jobs]


def table(pairs, targets):
    """Markdown: a row per source, a column per target; rules are numbered below."""
    rules, lines = {}, ["| source | " + " | ".join(targets) + " |", "|---" * (len(targets) + 1) + "|"]
    for name in sorted({pair.name for pair in pairs}):
        cells = []
        for pair in (p for p in pairs if p.name == name):
            is_rule = pair.cell not in ("exact", "rounded once to bf16")
            cells.append(str(rules.setdefault(pair.cell, len(rules) + 1)) if is_rule else pair.cell)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{number}. {text}" for text, number in rules.items())]) + "\n"


class DecodersTest(unittest.TestCase):
    """The decoders themselves, on what the writers left."""

    def test_they_decode_what_the_writers_do(self):
        read = 0
        for folder in sorted(CHECKPOINTS.iterdir()):
            if folder.name in UNREAD:
                continue
            with self.subTest(folder.name):
                truth = truth_of(folder.name)
                self.assertTrue(truth)
                self.assertEqual([], differences(decoders.decode(folder)[1], truth))
                read += 1
        self.assertGreater(read, 35)


@unittest.skipUnless(known_targets(), "this build writes no checkpoints")
class TargetsTest(unittest.TestCase):
    def test_every_pair_is_exact_or_refused_by_a_rule(self):
        names = [folder.name for folder in sorted(CHECKPOINTS.iterdir())]
        wrong = [f"{p.name} to {p.target}: {w}" for p in judge_all(names, known_targets()) for w in p.wrong]
        self.assertEqual([], wrong)


if __name__ == "__main__":
    if "--table" in sys.argv:
        place = pathlib.Path(sys.argv[sys.argv.index("--table") + 1])
        found = judge_all([f.name for f in sorted(CHECKPOINTS.iterdir())], known_targets())
        place.write_text(table(found, known_targets()))
        print("\n".join(f"{p.name} to {p.target}: {w}" for p in found for w in p.wrong))
    else:
        unittest.main()
