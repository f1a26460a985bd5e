"""Keeps Python's garbage collector short while a model is loaded.

vLLM collects twice there, for the memory of GPUs. Each time Python goes through all objects of all
imported modules, which takes longer than to map the weights.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def old_objects_left_out() -> Iterator[None]:
    """What is there already is not looked at; afterwards it is as before. Not if somebody else has
    left out objects: those would come back, too."""
    if gc.get_freeze_count() > 0:
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
