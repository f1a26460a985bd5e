#!/usr/bin/env python3
"""Times what vLLM does with quantized weights at every start on a CPU: the repack at load.

    build/release/bin/generate_checkpoint /var/tmp/source --format ct-w4a16
    tools/setup_vllm
    ~/.cache/prepack/vllm-bench/bin/python bench/vllm_repack.py /var/tmp/source

vLLM's own kernel classes do the work (process_weights_after_loading), on the layers that it makes
of a Llama: q, k and v fused, gate and up fused. Like vLLM, all weights are loaded first and then
repacked layer by layer. Every run is a process of its own. 4-bit checkpoints of compressed-tensors
and GPTQ; and those of gpt-oss, whose experts vLLM packs a layer at a time.

Exit codes: 0 measured; 2 usage; 6 vLLM or zentorch cannot do it here, and nothing was measured.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import threading
import time
from dataclasses import dataclass

NOT_RUN = 6
POLL_SECONDS = 0.002
FUSED = (
    ("self_attn", ("q_proj", "k_proj", "v_proj")),
    ("self_attn", ("o_proj",)),
    ("mlp", ("gate_proj", "up_proj")),
    ("mlp", ("down_proj",)),
)


class NotRun(Exception):
    """A library is missing, or does not do this on this machine."""


@dataclass
class Storage:
    """How a format stores the parts of a module, and along which dimensions (vLLM's terms)."""

    weight: str
    scale: str
    zero_point: str
    input_dim: int  # of the weight, which is packed along it

    @property
    def output_dim(self):
        return 1 - self.input_dim


STORAGE = {
    "compressed-tensors": Storage("weight_packed", "weight_scale", "weight_zero_point", 1),
    "gptq": Storage("qweight", "scales", "qzeros", 0),
}


@dataclass
class Run:
    load_seconds: float
    repack_seconds: float
    cpu_seconds: float  # of the repack, on all threads
    weight_bytes: int  # packed codes
    anonymous_bytes: int  # the most, above what Python and its libraries take


def anonymous_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    raise NotRun("this kernel does not say how much anonymous memory a process has")


class PeakMemory(threading.Thread):
    """The most anonymous memory while it runs, looked up every few milliseconds."""

    def __init__(self):
        super().__init__(daemon=True)
        self.start_bytes = anonymous_bytes()
        self.peak_bytes = self.start_bytes
        self.done = threading.Event()

    def run(self):
        while not self.done.wait(POLL_SECONDS):
            self.peak_bytes = max(self.peak_bytes, anonymous_bytes())

    def stop(self):
        self.done.set()
        self.join()
        return self.peak_bytes - self.start_bytes


class Source:
    """A checkpoint's tensors, by name."""

    def __init__(self, folder):
        from safetensors import safe_open

        self.config = json.loads((folder / "config.json").read_text())
        self.files = {}
        for path in sorted(folder.glob("*.safetensors")):
            file = safe_open(path, framework="pt")
            self.files.update((name, file) for name in file.keys())

    def fused(self, modules, part, dim):
        """The part of all modules in one new tensor."""
        import torch

        names = [f"{module}.{part}" for module in modules]
        return torch.cat([self.files[name].get_tensor(name) for name in names], dim)


def kernel_class(name):
    try:
        if name == "zentorch":
            import zentorch  # noqa: F401  its ops appear with it
            from vllm.model_executor.kernels.linear.mixed_precision import zentorch as module

            return module.ZentorchWNA16LinearKernel
        from vllm.model_executor.kernels.linear.mixed_precision.cpu import CPUWNA16LinearKernel

        return CPUWNA16LinearKernel
    except ImportError as error:
        raise NotRun(f"{error}. tools/setup_vllm installs vLLM and zentorch") from error


def load_layer(source, storage, modules, asymmetric):
    """A layer with the parameters that vLLM gives it, and the weights in them."""
    import torch

    layer = torch.nn.Module()
    layer.bias = None

    def add(name, part, output_dim, **attributes):
        # Parts of a module lie side by side along the output channels.
        parameter = torch.nn.Parameter(source.fused(modules, part, output_dim), requires_grad=False)
        vars(parameter).update(output_dim=output_dim, **attributes)
        setattr(layer, name, parameter)

    add(
        "qweight",
        storage.weight,
        storage.output_dim,
        input_dim=storage.input_dim,
        packed_dim=storage.input_dim,
    )
    add("scales", storage.scale, storage.output_dim, input_dim=storage.input_dim)
    # vLLM computes in bf16 here, and holds scales as it computes.
    layer.scales.data = layer.scales.data.to(torch.bfloat16)
    if asymmetric:
        add(
            "qzeros",
            storage.zero_point,
            storage.output_dim,
            input_dim=storage.input_dim,
            packed_dim=storage.output_dim,
        )
    else:
        layer.qzeros = None
    return layer


def make_kernel(kernel, layer, storage, group_size, asymmetric):
    import torch
    from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import (
        MPLinearLayerConfig,
    )
    from vllm.scalar_type import scalar_types

    inputs = layer.qweight.size(storage.input_dim) * 8
    shape = (inputs, layer.qweight.size(storage.output_dim))
    config = MPLinearLayerConfig(
        full_weight_shape=shape,
        partition_weight_shape=shape,
        weight_type=scalar_types.uint4 if asymmetric else scalar_types.uint4b8,
        act_type=torch.bfloat16,
        group_size=group_size,
        zero_points=asymmetric,
    )
    able, reason = kernel.can_implement(config)
    if not able:
        raise NotRun(f"vLLM would not use it here: {reason}")
    return kernel(config, "qweight", "scales", "qzeros")


def weights_of(config):
    """Group size, and whether there are zero points; exits for what is not measured."""
    quantization = config["quantization_config"]
    if quantization["quant_method"] == "gptq":
        weights = {**quantization, "num_bits": quantization["bits"], "symmetric": quantization["sym"]}
        unsuitable = quantization["desc_act"] or not quantization["sym"]
    else:
        weights = next(iter(quantization["config_groups"].values()))["weights"]
        unsuitable = quantization["format"] != "pack-quantized" or weights.get("actorder")
    if weights["num_bits"] != 4 or unsuitable:
        raise NotRun("4 bits only, packed, without activation order")
    return weights["group_size"], not weights["symmetric"]


def measure_experts(source):
    """One run on the stacked experts of gpt-oss."""
    try:
        import vllm._custom_ops  # noqa: F401  the ops appear with it
        from vllm.model_executor.layers.fused_moe.experts.cpu_moe import (
            prepare_mxfp4_moe_layer_for_cpu,
        )
    except ImportError as error:
        raise NotRun(f"{error}. tools/setup_vllm installs vLLM") from error
    memory = PeakMemory()
    memory.start()
    begin = time.perf_counter()
    layers = []
    for index in range(source.config["num_hidden_layers"]):
        experts = f"model.layers.{index}.mlp.experts."
        parts = []
        for part in ("blocks", "scales"):
            for leaf in ("gate_up_proj", "down_proj"):
                tensor = source.files[f"{experts}{leaf}_{part}"].get_tensor(f"{experts}{leaf}_{part}")
                parts.append(tensor.flatten(2).clone())
        layers.append(parts)
    loaded = time.perf_counter()
    cpu_before = time.process_time()
    weight_bytes = sum(w13.nbytes + w2.nbytes for w13, w2, _, _ in layers)
    for i, parts in enumerate(layers):
        layers[i] = prepare_mxfp4_moe_layer_for_cpu(*parts)
    end = time.perf_counter()
    cpu_seconds = time.process_time() - cpu_before
    return Run(loaded - begin, end - loaded, cpu_seconds, weight_bytes, memory.stop())


def measure(folder, kernel_name, threads):
    """One run, in this process."""
    import torch

    torch.set_num_threads(threads)
    source = Source(folder)
    method = source.config["quantization_config"]["quant_method"]
    if method == "mxfp4":
        return measure_experts(source)
    kernel = kernel_class(kernel_name)
    if method not in STORAGE:
        raise NotRun(f"{method} is not measured; {' and '.join(STORAGE)} are")
    storage = STORAGE[method]
    group_size, asymmetric = weights_of(source.config)

    memory = PeakMemory()
    memory.start()
    begin = time.perf_counter()
    work = []
    for index in range(source.config["num_hidden_layers"]):
        for block, names in FUSED:
            modules = [f"model.layers.{index}.{block}.{name}" for name in names]
            layer = load_layer(source, storage, modules, asymmetric)
            work.append((make_kernel(kernel, layer, storage, group_size, asymmetric), layer))
    loaded = time.perf_counter()
    cpu_before = time.process_time()
    weight_bytes = sum(layer.qweight.nbytes for _, layer in work)
    for one, layer in work:
        one.process_weights_after_loading(layer)
    end = time.perf_counter()
    cpu_seconds = time.process_time() - cpu_before
    return Run(loaded - begin, end - loaded, cpu_seconds, weight_bytes, memory.stop())


def measure_in_child(arguments):
    """A Run, or a text that says why there is none: exceptions of other libraries do not travel."""
    try:
        return measure(*arguments)
    except NotRun as error:
        return str(error)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=pathlib.Path, help="a checkpoint of generate_checkpoint")
    parser.add_argument("--kernel", choices=("wna16", "zentorch"), default="wna16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    if not (arguments.source / "config.json").is_file():
        parser.error(f"{arguments.source} is no checkpoint folder")
    if arguments.threads < 1 or arguments.runs < 1:
        parser.error("--threads and --runs are at least 1")
    return arguments


def main():
    arguments = parse()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    job = (arguments.source, arguments.kernel, arguments.threads)
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        runs = pool.map(measure_in_child, [job] * arguments.runs, chunksize=1)
    method = json.loads((arguments.source / "config.json").read_text())["quantization_config"]
    name = "experts" if method["quant_method"] == "mxfp4" else arguments.kernel
    refused = [run for run in runs if isinstance(run, str)]
    if refused:
        print(f"not run: {name}: {refused[0]}", file=sys.stderr)
        return NOT_RUN
    repack = statistics.median(run.repack_seconds for run in runs)
    gigabytes = runs[0].weight_bytes / 1e9
    print(
        f"{name}, {arguments.threads} threads, median of {arguments.runs}: "
        f"{gigabytes:.2f} GB of packed weights, "
        f"copied in {statistics.median(run.load_seconds for run in runs):.2f} s, "
        f"repacked in {repack:.2f} s ({gigabytes / repack:.3f} GB/s, "
        f"{statistics.median(run.cpu_seconds for run in runs):.2f} s of CPU), "
        f"anonymous memory up to {max(run.anonymous_bytes for run in runs) / 2**20:.0f} MiB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
