"""The table of docs/checkpoint-targets.md: sources of a kind have one row, whatever their names."""

import re
import textwrap

KINDS = [
    ("GPTQ, AWQ, AutoRound, compressed-tensors or Quark: 4 bits, symmetric", [
        "ar-gptq-w4-sym", "ar-w4-sym-g128", "ct-gptq-static-act-g128", "ct-int4-moe", "ct-smollm2-w4a16-gptq-g64",
        "ct-spinquant-r1r2", "ct-w4a16-channel-sym", "ct-w4a16-g128-sharded", "ct-w4a16-g128-sym",
        "gptqmodel-smollm2-awq-g64", "gptqmodel-w4-sym-g128", "quark-awq"]),
    ("the same, asymmetric", [
        "ar-arawq-w4-asym", "ar-awq-w4-asym", "ar-gptq-w4-asym", "ar-model-free-w4-asym",
        "ar-old-model-free-w4-asym", "awq-gemm-g128", "awq-gemv-g128", "awq-gemvfast-g128", "ct-old-asym-g128",
        "ct-w4a16-g32-asym", "gptqmodel-w4-asym-v1", "gptqmodel-w4-asym-v2", "quark-uint4"]),
    ("4 bits with activation order (`g_idx`)", ["ct-old-actorder-group-g128", "gptqmodel-w4-actorder-g128"]),
    ("4 bits with groups of different sizes", ["ct-nested-moe"]),
    ("the same, some asymmetric", ["quark-int4-order"]),
    ("2, 3 or 8 bits, or some modules with 8", [
        "ar-gptq-w4-sym-patterns", "ar-w2-sym", "ar-w3-sym", "ar-w4-sym-mixed", "ar-w4-sym-patterns", "ar-w8-sym",
        "ct-smollm2-w8a16-g64", "ct-w8a16-g128-sym", "gptqmodel-dynamic", "gptqmodel-lm-head", "gptqmodel-w3-sym",
        "gptqmodel-w8-sym"]),
    ("2, 4 and 8 bits, and an embedding: compressed-tensors", ["ct-mobile"]),
    ("GPT-2 (Conv1D), 8 bits", ["gptqmodel-gpt2-w8"]),
    ("4 bits, int8 activations", ["ct-w4a8"]),
    ("int8, int8 activations", [
        "ct-int8-moe", "ct-w8a8-asym-act", "ct-w8a8-dynamic", "ct-w8a8-static", "quark-int8", "quark-int8-dynamic"]),
    ("int8 and 4 bits, some with int8 activations", ["ct-mixed"]),
    ("int8 with unsigned activations, and 4 bits, some channels padded: Quark", ["quark-padded"]),
    ("FP8 in blocks, FP8 activations", [
        "ct-fp8-block", "fp8-fused-experts", "fp8-fused-experts-transposed", "fp8-minimax-fmt", "fp8-ue8m0",
        "hf-fp8-stacked-scales", "hf-fp8-ue8m0"]),
    ("FP8 in blocks, weights only: ModelOpt", ["modelopt-fp8-block"]),
    ("FP8 in blocks, weights only: GPTQModel", ["gptqmodel-fp8-block"]),
    ("FP8 per channel, FP8 activations", [
        "ct-cache-heads", "ct-fp8-dynamic", "fbgemm-fp8", "modelopt-fp8-channel-token", "quark-fp8-channel"]),
    ("FP8 per channel, weights only: compressed-tensors", ["ct-fp8-w8a16"]),
    ("FP8 per channel, weights only: GPTQModel", ["gptqmodel-fp8-row"]),
    ("FP8 per tensor, static FP8 activations", [
        "ct-fp8-tensor", "hf-fp8-static", "modelopt-fp8", "modelopt-hf-quant-config", "quark-fp8"]),
    ("FP8 per tensor, weights only: GPTQModel", ["gptqmodel-fp8-tensor"]),
    ("FP8 of several kinds: ModelOpt", ["modelopt-mixed-blocks"]),
    ("the same, weights only: GPTQModel", ["gptqmodel-fp8-dynamic"]),
    ("MXFP8", ["ct-mxfp8", "mxfp8-minimax"]),
    ("MXFP4", ["ct-mxfp4", "quark-mxfp4"]),
    ("MXFP4, experts one by one: Kimi K3", ["ct-kimi-k3"]),
    ("MXFP4, experts of gpt-oss", ["gpt-oss-mxfp4"]),
    ("MXFP4 and FP8", ["quark-mixed"]),
    ("4 bits and FP8", ["quark-fp8-int4"]),
    ("4 and 8 bits, some asymmetric: Quark", ["quark-first", "quark-integers"]),
    ("FP4 experts, the rest FP8: DeepSeek V4", ["fp8-deepseek-v4"]),
    ("NVFP4: compressed-tensors", ["ct-nvfp4", "ct-nvfp4a16"]),
    ("NVFP4: ModelOpt", ["modelopt-nvfp4"]),
    ("NVFP4: ModelOpt, experts of gpt-oss", ["modelopt-nvfp4-gpt-oss"]),
    ("NVFP4: Quark", ["quark-nvfp4"]),
]  # fmt: skip


def short(rule):
    """A rule without the module's numbers: what the format can hold, or lacks."""
    stacks = "reads the experts of a layer as one tensor"
    if stacks in rule:
        why = "these cannot be one" if "stay apart" in rule else "the format has them one by one"
        return f"the class of the model {stacks}, and {why}"
    if " reads " in rule and not re.match(r"[\w.-]+/[\w-]+: ", rule):
        held = re.findall(r"[\w.-]+/[\w-]+ reads ([^;]*)", rule)
        return "it holds " + ", or ".join(dict.fromkeys(held))
    rule = re.sub(r"^[\w.-]+/[\w-]+(, [\w.-]+/[\w-]+)*: ", "", rule)
    return re.sub(r"^activations are \d-bit.*?: ", "quantized activations: ", rule)


def table(pairs, targets):
    """Markdown: a row for a kind of source, a column for a target; rules have numbers and are listed below."""
    of = {(pair.name, pair.target): pair for pair in pairs}
    rules = {}
    lines = ["| source | " + " | ".join(f"`{target}`" for target in targets) + " |", "|---" * (len(targets) + 1) + "|"]
    for kind, names in KINDS:
        cells = []
        for target in targets:
            found = dict.fromkeys(short(of[name, target].rule) or of[name, target].cell for name in names)
            refused = [of[name, target] for name in names if of[name, target].rule]
            if refused and len(refused) < len(names):
                raise ValueError(f"{kind} are not alike for {target}: {list(found)}")
            numbers = [str(rules.setdefault(text, len(rules) + 1)) for text in found] if refused else []
            cells.append(f"no: {', '.join(numbers)}" if refused else " or ".join(sorted(found)))
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    listed = [wrapped(f"{number}. {text}") for text, number in rules.items()]
    return "\n".join([*lines, "", *listed]) + "\n"


def wrapped(item):
    """An item of a list in lines that are no longer than those of other sentences."""
    indent = " " * (item.index(" ") + 1)
    return "\n".join(textwrap.wrap(item, 118, subsequent_indent=indent, break_on_hyphens=False))
