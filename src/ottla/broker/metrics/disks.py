"""The volumes of the data directories."""

from collections.abc import Mapping

from ottla.env import Env
from ottla.metrics import Collection, Collector, Family, GaugeCollector, Kind, labels
from ottla.storage.log_dirs import LogDirs

FAMILIES = (
    Family(
        "ottla_log_directory_total_bytes",
        Kind.GAUGE,
        "Bytes of the volume that has the data directory.",
        ("directory",),
    ),
    Family(
        "ottla_log_directory_free_bytes", Kind.GAUGE, "Bytes of it that can still be used.", ("directory",)
    ),
)


class DisksCollector(Collector):
    families = FAMILIES

    def __init__(self, env: Env, log_dirs: LogDirs) -> None:
        self._env = env
        self._log_dirs = log_dirs

    async def start(self) -> Collection[None]:
        values = await self._env.threads.run(self._read)
        return await GaugeCollector(FAMILIES, lambda: values).start()

    def _read(self) -> Mapping[str, float]:
        """Runs in a thread: a network volume may take long."""
        values: dict[str, float] = {}
        for path in self._log_dirs.paths:
            try:
                space = self._env.disk.space(path)
            except OSError:  # whoever reads or writes records meets it too
                continue
            for family, value in zip(FAMILIES, space, strict=True):
                values[family.name + labels(directory=path)] = value
        return values
