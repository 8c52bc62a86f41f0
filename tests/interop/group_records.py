"""The records of the offsets topic, as shown by Kafka's dump tool with its offsets decoder."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.kafka_jars import java_command

DUMP = "org.apache.kafka.tools.DumpLogSegments"
TIMES = {"currentStateTimestamp", "assignmentTimestamp", "commitTimestamp"}

Record = tuple[dict[str, Any], dict[str, Any] | None]


def dumped(libs: Path, data_dir: Path, names: Mapping[str, str]) -> list[Record]:
    """Keys and values of all records in the topic, with names in place of ids."""
    files = [file for file in sorted(data_dir.glob("__consumer_offsets-*/*.log")) if file.stat().st_size]
    arguments = ("--offsets-decoder", "--files", ",".join(map(str, files)))
    done = subprocess.run(
        java_command(libs, DUMP, *arguments), capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0 or "isvalid: false" in done.stdout:
        raise AssertionError(done.stderr + done.stdout)
    shown = done.stdout
    for real_id, name in names.items():
        shown = shown.replace(real_id, name)
    records = []
    for line in shown.splitlines():
        if line.startswith("| offset:"):
            key, _, value = line.partition(" key: ")[2].partition(" payload: ")
            records.append((json.loads(key), None if value == "<DELETE>" else json.loads(value)))
    return records


def without_times(value: Any) -> Any:
    """The value with "any" in place of each timestamp."""
    if isinstance(value, dict):
        return {
            name: "any" if name in TIMES and item else without_times(item) for name, item in value.items()
        }
    return [without_times(item) for item in value] if isinstance(value, list) else value
