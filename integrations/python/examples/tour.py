#!/usr/bin/env python3
"""A tour of the package, from a checkpoint to arrays.

    python tour.py SOURCE FOLDER

Packs SOURCE into FOLDER for vLLM, proves the folder, and looks at what is in it. Type checkers know every name here.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List, Tuple

import numpy
from numpy.typing import NDArray

import prepack


def pack(source: str, folder: str) -> Dict[str, int]:
    plan = prepack.plan(source, target="vllm-cpu")
    assert plan.ok, plan.findings
    converted = prepack.convert(source, folder, target="vllm-cpu", progress=True)
    return converted.layouts


def prove(folder: str, source: str) -> float:
    """The worst end-to-end figure of all modules, in dB."""
    verified = prepack.verify(folder, source=source).raise_if_bad()
    figures: List[float] = []
    for module in verified.modules:
        if module.gemm is not None:
            figures += [given.end_to_end.sqnr_db for given in module.gemm.inputs
                        if isinstance(given.end_to_end.sqnr_db, float)]
    return min(figures)


def look(folder: str) -> Dict[str, Tuple[int, ...]]:
    """The shape of each module's packed weight; views are made by four threads at once."""
    with prepack.open(folder, target="vllm-cpu") as packed:
        print(packed)

        def shape_of(module: prepack.Module) -> Tuple[int, ...]:
            weight: NDArray[numpy.generic] = module.parts["weight"].numpy()
            return weight.shape

        with ThreadPoolExecutor(4) as threads:
            return dict(zip(packed, threads.map(shape_of, packed.values())))


def main() -> int:
    source, folder = sys.argv[1:]
    try:
        print(pack(source, folder))
        print(f"{prove(folder, source):.1f} dB")
        for name, shape in look(folder).items():
            print(name, *shape)
    except prepack.Error as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
