"""`ottla topics compaction`: how much of a topic is compacted, from the files of a data directory."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from ottla.cli.options import AsJson
from ottla.cli.output import CommandError, print_json, print_table


def compaction(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    log_dirs: Annotated[
        str, typer.Option("--log-dirs", metavar="DIR,...", help="The broker's data directories.")
    ] = "data",
    as_json: AsJson = False,
) -> None:
    """Show for each partition how much is clean and dirty, how many keys it has, and how much compaction would free.

    Reads the files of Ottla or Kafka, also while a broker runs: the protocol has no request for this.
    """
    import time

    from ottla.env.real_disk import RealDisk
    from ottla.model.errors import KafkaError
    from ottla.storage.cleaner.report import CompactionReport, compaction_reports

    found: list[CompactionReport] = []
    for log_dir in log_dirs.split(","):
        try:
            found += compaction_reports(RealDisk(), log_dir, topic, time.time_ns() // 1_000_000)
        except KafkaError as error:
            raise CommandError(error.message) from None
        except OSError as error:
            raise CommandError(f"{error.filename or log_dir} cannot be read: {error.strerror}") from None
    if not found:
        raise CommandError(
            f"no partition of {topic} is in {log_dirs}: set --log-dirs to the broker's log.dirs"
        )
    found.sort(key=lambda report: report.partition)
    if as_json:
        print_json(*(report._asdict() for report in found))
        return
    print_table(
        [">PARTITION", ">CLEAN BYTES", ">DIRTY BYTES", ">DIRTY", ">KEYS", ">WOULD FREE", "LAST RUN"],
        [
            (
                report.partition,
                report.clean_bytes,
                report.dirty_bytes,
                f"{report.dirty_ratio:.0%}",
                report.keys,
                report.frees_bytes,
                _time(report.last_run_ms),
            )
            for report in found
        ],
    )


def _time(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return "never"
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
