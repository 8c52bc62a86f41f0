"""What is in the offsets topic, as Kafka's dump tool with its offsets decoder shows it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.interop.kafka_jars import java_command

DUMP = "org.apache.kafka.tools.DumpLogSegments"
OFFSET_COMMIT = "1"
TIMES = {"currentStateTimestamp", "assignmentTimestamp", "commitTimestamp"}
# The hash of the topics is made of their ids too.
IDS = {"memberId", "leader", "topicId", "metadataHash"}

Record = tuple[dict[str, Any], dict[str, Any] | None]
Story = dict[str, list[tuple[str, Any]]]


def dumped(libs: Path, data_dir: Path, rename: Callable[[str], str] = str) -> list[Record]:
    """Keys and values of all that is in the topic; `rename` gets each line before it is read."""
    files = [file for file in sorted(data_dir.glob("__consumer_offsets-*/*.log")) if file.stat().st_size]
    arguments = ("--offsets-decoder", "--files", ",".join(map(str, files)))
    done = subprocess.run(
        java_command(libs, DUMP, *arguments), capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0 or "isvalid: false" in done.stdout:
        raise AssertionError(done.stderr + done.stdout)
    records = []
    for line in done.stdout.splitlines():
        if line.startswith("| offset:"):
            key, _, value = rename(line).partition(" key: ")[2].partition(" payload: ")
            records.append((json.loads(key), None if value == "<DELETE>" else json.loads(value)))
    return records


def stories(records: list[Record]) -> Story:
    """What was written of each group, one record after the other, without what is different each time."""
    found: Story = {}
    for key, value in records:
        fields = key["data"]
        what = " ".join(
            [key["type"], *(str(fields[name]) for name in ("topic", "partition") if name in fields)]
        )
        story = found.setdefault(fields.get("groupId") or fields["group"], [])
        # A member commits when it likes: the last commit counts.
        if key["type"] == OFFSET_COMMIT:
            story[:] = [other for other in story if other[0] != what]
        story.append((what, alike(value, TIMES | IDS)))
    for story in found.values():
        story.sort(key=lambda entry: entry[0] if entry[0].startswith(OFFSET_COMMIT) else "")
    return found


def alike(value: Any, varying: set[str]) -> Any:
    """The value with "any" for the fields that are different each time, unless they are empty."""
    if isinstance(value, dict):
        return {
            name: "any" if name in varying and item else alike(item, varying) for name, item in value.items()
        }
    return [alike(item, varying) for item in value] if isinstance(value, list) else value
