"""Checks of a spool directory before it starts: folders, permissions, and the topic's limit."""

import os
from collections.abc import Iterator

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.configs import describe_configs
from ottla.admin.topics import topic_exists
from ottla.pipeline.ingest.spooldir.settings import RECORD_OVERHEAD_BYTES, SpoolDirSettings
from ottla.pipeline.stage import Context, Finding
from ottla.pipeline.topics import missing_topics


def check_folders(settings: SpoolDirSettings, where: str) -> Iterator[Finding]:
    folder = settings.folder
    remote = [path for path in (folder, settings.done_folder, settings.log) if "://" in path]
    if remote:
        yield Finding(
            where,
            f"{remote[0]} is not a local path.",
            "A spool directory, its `done_folder` and its `log` must be local or mounted; set `log` if the"
            " checkpoints are not.",
        )
        return
    if not os.path.isdir(folder):
        yield Finding(where, f"There is no folder {folder}.", "Create or mount it, or fix `folder`.")
        return
    if not os.access(folder, os.R_OK | os.X_OK):
        yield Finding(where, f"The folder {folder} cannot be read.", "Allow this user to read it.")
    if settings.after != "keep" and not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(
            where,
            f"Files in the folder {folder} cannot be renamed, moved or deleted: it cannot be written to.",
            'Allow this user to write to it, or set after = "keep".',
        )
    if settings.after == "move" and settings.done_folder:
        yield from _check_done_folder(settings, where)
    existing = _nearest_folder(settings.log)
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Finding(
            where,
            f"The log of taken files cannot be created in {settings.log}.",
            f"Allow this user to write to {existing}.",
        )


def _check_done_folder(settings: SpoolDirSettings, where: str) -> Iterator[Finding]:
    existing = _nearest_folder(settings.done_folder)
    if not os.path.isdir(existing) or not os.access(existing, os.W_OK | os.X_OK):
        yield Finding(
            where,
            f"Files cannot be moved to {settings.done_folder}.",
            f"Allow this user to write to {existing}.",
        )
    elif os.stat(existing).st_dev != os.stat(settings.folder).st_dev:
        yield Finding(
            where,
            f"The `done_folder` {settings.done_folder} is not on the file system of {settings.folder}.",
            "Choose one that is: only then is a move atomic.",
        )


def _nearest_folder(path: str) -> str:
    """The path, or the nearest one above it that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def check_topic(settings: SpoolDirSettings, context: Context, where: str) -> Iterator[Finding]:
    topic = settings.topic
    try:
        cluster = Cluster(context.cluster.bootstrap, context.cluster.properties)
        exists = topic_exists(cluster, topic)
        configs = describe_configs(cluster, "topic", topic) if exists else []
    except ClusterError as error:
        yield Finding(
            where, f"The topic {topic} cannot be checked: {error}", "Start the broker, or fix [cluster]."
        )
        return
    yield from missing_topics([topic], [topic] if exists else [], context, where)
    needed = settings.max_record_bytes + RECORD_OVERHEAD_BYTES
    allowed = next((int(line.value or 0) for line in configs if line.name == "max.message.bytes"), needed)
    if needed > allowed:
        yield Finding(
            where,
            f"A record may have {settings.max_record_bytes} bytes, but the topic {topic} accepts messages of at most"
            f" {allowed} bytes.",
            f"Set the topic's max.message.bytes to {needed} or more, or lower `max_record_bytes`.",
        )
