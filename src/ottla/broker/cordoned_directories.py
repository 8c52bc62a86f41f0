"""The data directories of this broker that get no new replicas (`cordoned.log.dirs`, KIP-1066).

They keep the replicas that they have. The broker puts no new replica into them, and reports them to the controller,
which places none on a broker that has no other directory.
"""

import logging
from typing import TYPE_CHECKING

from ottla.core.controller.image import MetadataImage
from ottla.model.config import BrokerConfig
from ottla.model.config.cordoned import CORDONED_LOG_DIRS, split_cordoned_paths
from ottla.storage.log_dirs import LogDirs

if TYPE_CHECKING:
    from ottla.broker.lifecycle import BrokerLifecycle

logger = logging.getLogger("ottla.broker")


class CordonedDirectories:
    """Below metadata.version 4.3-IV0 the config has no effect: the metadata could not have the directories."""

    def __init__(
        self, config: BrokerConfig, log_dirs: LogDirs, lifecycle: "BrokerLifecycle", image: MetadataImage
    ) -> None:
        self._config = config
        self._log_dirs = log_dirs
        self._ids = log_dirs.directory_ids  # also of directories that go offline later
        self._lifecycle = lifecycle
        self._is_supported = image.has_cordoned_directories
        self._reports = False
        self._unknown: list[str] = []  # entries of the config
        self.apply()

    def start_reports(self) -> None:
        """The dynamic configs are known by now. A report before could lift a cordon for a moment."""
        self._reports = True
        self.apply()

    def image_changed(self, old: MetadataImage, new: MetadataImage) -> None:
        if new.has_cordoned_directories != self._is_supported:
            self._is_supported = new.has_cordoned_directories
            self.apply()

    def apply(self) -> None:
        """The config, or the directories that are online, have changed."""
        log_dirs, config = self._log_dirs, self._config
        paths, unknown = split_cordoned_paths(config.get_list("cordoned.log.dirs"), config.log_dirs)
        if unknown and unknown != self._unknown:
            logger.warning(
                "%s has entries that are not in log.dirs, and that have no effect: %s. The others are cordoned. "
                "Remove these entries from %s of broker %d",
                CORDONED_LOG_DIRS, ", ".join(unknown), CORDONED_LOG_DIRS, config.node_id,
            )  # fmt: skip
        self._unknown = unknown
        new = paths if self._is_supported else frozenset()
        if new != log_dirs.cordoned:
            logger.info("cordoned data directories: %s", ", ".join(sorted(new)) or "none")
        log_dirs.cordoned = new
        if self._reports:
            online = [path for path in log_dirs.paths if path in new]
            self._lifecycle.directories_cordoned(
                tuple(self._ids[path] for path in online) if self._is_supported else None
            )
