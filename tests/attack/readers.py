"""The project's own readers of packed folders that need no vLLM: what they say of a folder.

Whatever is wrong with one, they refuse it with their own error; any other exception is a finding.
"""

import pathlib
import sys
import types

import raw

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "integrations" / "vllm"), str(ROOT / "integrations" / "python" / "src")]
# The plug-in's readers need nothing of vLLM or torch, and of xxhash only this.
sys.modules.setdefault("xxhash", types.SimpleNamespace(xxh3_128_hexdigest=raw.xxh3))

import prepack  # noqa: E402
from prepack_vllm.errors import PrepackError  # noqa: E402
from prepack_vllm.headers import check_headers  # noqa: E402
from prepack_vllm.manifest import read_manifest  # noqa: E402
from prepack_vllm.names import check_names  # noqa: E402


def opened_by_plugin(folder):
    """Why the plug-in's reader refuses the folder; None: it takes it."""
    try:
        manifest = read_manifest(folder)
        check_names(manifest)
        check_headers(manifest)
    except PrepackError as error:
        return str(error)
    return None


def opened_by_package(folder):
    """The same of the Python package."""
    try:
        for module in prepack.open(folder).values():
            module.as_numpy()
    except prepack.FolderError as error:
        return str(error)
    return None


READERS = {"the plug-in": opened_by_plugin, "the Python package": opened_by_package}


def failures(folder):
    """Of readers that neither take a folder nor refuse it."""
    for name, opened in READERS.items():
        try:
            opened(folder)
        except OSError:
            pass  # the system failed: a link to nothing, a folder in place of a file
        except Exception as error:  # noqa: BLE001  that is what is looked for
            yield f"{name}: {type(error).__name__}: {error}"
