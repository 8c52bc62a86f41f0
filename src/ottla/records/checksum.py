"""CRC32C from the extension module of the `crc32c` package.

The package itself looks up its version when it is imported, which takes twenty milliseconds: a twentieth of the startup
time of a broker. So this loads only the extension module.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

__all__ = ["crc32c"]

Checksum = Callable[..., int]


def _load() -> Checksum:
    package = find_spec("crc32c")
    spec = (
        PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package is not None else None
    )
    if spec is None or spec.loader is None:  # the package has another layout
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    checksum: Checksum = module.crc32c
    return checksum


crc32c = _load()
