"""Can this machine run a folder, with the runtime as it is installed?"""

import platform

import torch

from prepack_vllm.errors import CannotRunHere, Unsupported
from prepack_vllm.kernels import Kernel, has_op
from prepack_vllm.layouts import LAYOUTS
from prepack_vllm.manifest import Manifest

_TARGETS = ("vllm-cpu", "zentorch", "vllm-arm")


def zentorch_runs() -> bool:
    """vLLM takes its plain CPU platform when zentorch cannot be imported, and hardly says so."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_zen_cpu())


def _cpu() -> str:
    if platform.machine() == "aarch64":
        return "Arm"
    levels = {
        "AMX": torch.cpu._is_amx_tile_supported(),
        "AVX-512 with BF16": torch.cpu._is_avx512_bf16_supported(),
        "AVX-512": torch.cpu._is_avx512_supported(),
        "AVX2": torch.cpu._is_avx2_supported(),
    }
    return next((name for name, there in levels.items() if there), "no AVX2")


def load_ops() -> None:
    """The ops of vLLM's library for this CPU, and of zentorch where it is used."""
    from vllm.platforms import current_platform

    current_platform.import_kernels()


def check_target(manifest: Manifest) -> None:
    if manifest.target not in _TARGETS:
        raise Unsupported(
            str(manifest.folder),
            f"the folder is packed for {manifest.target}, which vLLM does not read",
            hint=manifest.rebuild_hint("vllm-cpu"),
        )


def check_layout(id: str, where: str, manifest: Manifest) -> type[Kernel]:
    """The kernel of a layout whose every op is there."""
    kernel = LAYOUTS[id].kernel
    if kernel.needs_zentorch and not zentorch_runs():
        raise CannotRunHere(
            where,
            f"{id} needs zentorch on an AMD CPU with AVX-512, and vLLM did not load it",
            found=_cpu(),
            hint="Install zentorch (and `deprecated`, which it needs), or take the target "
            f"vllm-cpu. {manifest.rebuild_hint('vllm-cpu')}",
        )
    if kernel.needs_kleidiai and not torch.backends.kleidiai.is_available():
        raise CannotRunHere(
            where,
            f"{id} needs an Arm CPU and a torch with KleidiAI",
            found=_cpu(),
            hint=f"Take the target vllm-cpu. {manifest.rebuild_hint('vllm-cpu')}",
        )
    missing = [op for op in kernel.ops if not has_op(op)]
    if missing and not kernel.runs_without_ops:
        raise CannotRunHere(
            where,
            f"{id} needs the op {missing[0]}, which vLLM's library for this CPU lacks",
            found=_cpu(),
            hint="docs/layouts/ says which CPU each layout runs on",
        )
    return kernel


def check_platform(manifest: Manifest) -> None:
    """Every op of every layout in use is there."""
    load_ops()
    for id in sorted({module.layout for module in manifest.modules.values()} & set(LAYOUTS)):
        check_layout(id, str(manifest.folder), manifest)
