"""Opens folders that `prepack convert` made.

    folder = prepack.open("packed")
    weight = folder["model.layers.0.mlp.up_proj"].parts["weight"].numpy()

Tensors are views of the mapped files: nothing is read before it is used, and nothing is copied.
"""

from prepack.errors import FolderError
from prepack.folder import Folder, Layout, Module, Source
from prepack.folder import open_folder as open
from prepack.part import Part

__all__ = ["Folder", "FolderError", "Layout", "Module", "Part", "Source", "open"]
