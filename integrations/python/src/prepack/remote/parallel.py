"""Work on several connections at a time."""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Callable, Iterable, Tuple


def run_all(connections: int, work: Callable[..., Any], arguments: Iterable[Tuple[Any, ...]]) -> None:
    """Calls work(*arguments) for each of them. After a failure nothing new is begun, and it is raised."""
    with ThreadPoolExecutor(connections) as pool:
        futures = [pool.submit(work, *each) for each in arguments]
        done, rest = wait(futures, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
        for future in done:
            future.result()
