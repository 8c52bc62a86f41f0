"""The Python process of an executor, which reads and writes the rows of many tasks, one after the other."""

import gc
import sys

_modules = 0


def keep_imports() -> None:
    """Leaves the objects of all imported modules out of later garbage collections.

    Spark collects garbage after each task. With these objects, that takes 20 to 40 ms, longer than many tasks.
    """
    global _modules
    if len(sys.modules) > _modules:
        _modules = len(sys.modules)
        gc.freeze()
