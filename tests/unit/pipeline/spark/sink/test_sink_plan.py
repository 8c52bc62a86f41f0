"""Sink: nondeterministic plans are rejected, and fingerprints identify plans."""

import dataclasses
import json
from typing import Any

import pytest

from ottla.pipeline.archive.filesystem import S3A
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings
from ottla.pipeline.spark import options as reading
from ottla.pipeline.spark.sink.plan import Operator, find_nondeterminism, fingerprint, in_place_fingerprint
from ottla.pipeline.spark.sink.source_options import OPTIONS, deciding, source_text

SOURCE = Operator(
    "StreamingRelationV2", 1, "StreamingRelationV2 Provider@798bf0ec, theirs, [subscribe=raw], [value#1]"
)


def project(text: str = "Project [value#1L AS key#2]") -> Operator:
    return Operator("Project", 0, text)


def test_a_plan_of_columns_and_filters_can_run_again() -> None:
    assert find_nondeterminism([project(), Operator("Filter", 1, "Filter (value#1 > 3)"), SOURCE]) is None


def test_a_random_expression_is_named() -> None:
    found = find_nondeterminism([Operator("Project", 0, "Project [...]", random=("uuid()",)), SOURCE])
    assert found is not None
    assert found[0] == "`uuid()` may give another value when a batch runs again."


def test_a_limit_is_rejected() -> None:
    found = find_nondeterminism([Operator("GlobalLimit", 0, "GlobalLimit 5"), SOURCE])
    assert found is not None
    assert "`GlobalLimit 5` keeps the rows that happen to arrive first" in found[0]


def test_a_repartition_in_turn_is_rejected_and_one_by_value_is_not() -> None:
    dealt = Operator("Repartition", 0, "Repartition 3, true", is_by_value=False, partitions=3)
    found = find_nondeterminism([dealt, SOURCE])
    assert found is not None
    assert "repartition(8, 'key')" in found[1]
    assert find_nondeterminism([dealt._replace(partitions=1), SOURCE]) is None
    assert (
        find_nondeterminism(
            [Operator("RepartitionByExpression", 0, "RepartitionByExpression [key#1]"), SOURCE]
        )
        is None
    )


def test_only_logic_that_leaves_rows_in_their_partition_may_change_in_the_middle_of_a_batch() -> None:
    def plan(*kinds: str) -> list[Operator]:
        return [Operator(kind, depth, f"{kind} [x#{depth}]") for depth, kind in enumerate(kinds)]

    source = "StreamingRelationV2"
    simple = in_place_fingerprint(plan("Project", source))
    assert simple is not None
    assert simple == in_place_fingerprint(plan("Project", "CollectMetrics", "Filter", "Generate", source))
    for moving in (("Deduplicate", source), ("Project", "Union", source, source), ("Aggregate", source)):
        assert in_place_fingerprint(plan(*moving)) is None


def test_two_runs_of_one_program_have_one_fingerprint() -> None:
    again = SOURCE._replace(text="StreamingRelationV2 Provider@1f, theirs, [subscribe=raw], [value#77]")
    assert fingerprint([project(), SOURCE]) == fingerprint([project("Project [value#77L AS key#80]"), again])
    lambdas = ["transform(a#1, lambdafunction(x_3#4, x_3#4))", "transform(a#9, lambdafunction(x_0#6, x_0#6))"]
    assert len({fingerprint([project(text)]) for text in lambdas}) == 1


def test_a_watermark_is_the_same_in_each_run_unless_its_column_or_its_delay_changes() -> None:
    def watermark(id_: str, rest: str = "at#2: timestamp, 1 minutes") -> str:
        text = f"EventTimeWatermark {id_}, {rest}"
        return fingerprint([Operator("EventTimeWatermark", 0, text), SOURCE])

    first, second = "14511cd6-d9f5-434a-9d9a-b3732c8a3fd9", "e0a98f5c-0c8a-4c3b-b2d1-8c5a63a5a1ff"
    assert watermark(first) == watermark(second, "at#77: timestamp, 1 minutes")
    assert watermark(first) != watermark(first, "at#2: timestamp, 2 minutes")

    def literal(id_: str) -> str:
        return fingerprint([Operator("Filter", 0, f"Filter (id#1 = {id_})"), SOURCE])

    assert literal(first) != literal(second)


def test_another_expression_operator_or_option_of_another_source_changes_the_fingerprint() -> None:
    plans = [
        [project(), SOURCE],
        [project("Project [value#1L AS other#2]"), SOURCE],
        [project(), Operator("Filter", 1, "Filter (value#1 > 3)"), SOURCE],
        [project(), SOURCE._replace(text=SOURCE.text.replace("raw", "raw2"))],
    ]
    assert len({fingerprint(plan) for plan in plans}) == len(plans)


def fields_of(kind: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("ottla", {name.lower() for name in reading.KNOWN}),
        ("ottla", {*reading.IGNORED, "kafka.isolation.level"}),
        ("ottla-replay", {name.lower() for name in reading.KNOWN} | {"plan"}),
        ("ottla-spooldir", fields_of(SpoolDirSettings)),
        ("ottla-mysql", fields_of(MySqlCapture)),
        ("ottla-postgres", fields_of(PostgresCapture)),
    ],
)
def test_every_option_is_listed_as_deciding_or_free(source: str, options: set[str]) -> None:
    assert options <= {*OPTIONS[source].deciding, *OPTIONS[source].free}


def test_limits_secrets_and_addresses_may_change_in_the_middle_of_a_batch() -> None:
    kept = {"minpartitions": "4", "kafka.isolation.level": "read_committed"}
    changed = {
        "maxoffsetspertrigger": "5",
        "startingoffsets": "latest",
        "kafka.sasl.password": "new",
        "kafka.bootstrap.servers": "h:2",
        "failondataloss": "false",
    }
    assert deciding("ottla", kept | changed) == kept
    assert deciding("ottla-archive", dict.fromkeys(S3A, "x") | {"plan": "{}"}) == {"plan": "{}"}
    replay = kept | {"plan": "{}"}
    assert deciding("ottla-replay", dict.fromkeys(S3A, "x") | replay | changed) == replay
    captured = {"tables": ["shop.*"], "topic": "raw", "server": "shop"}
    options = {"capture": json.dumps(captured | {"password": "new", "host": "other", "server_id": 7})}
    assert deciding("ottla-mysql", options) == captured


def test_an_option_that_decides_about_rows_changes_the_fingerprint() -> None:
    texts = [
        source_text(source, options, columns)
        for source, options, columns in (
            ("ottla", {"minpartitions": "4"}, ["key"]),
            ("ottla", {"minpartitions": "5"}, ["key"]),
            ("ottla", {"minpartitions": "4"}, ["key", "headers"]),
            ("ottla", {"minpartitions": "4", "kafka.isolation.level": "read_committed"}, ["key"]),
            ("ottla", {"minpartitions": "4", "nobodythoughtof": "it"}, ["key"]),
            ("ottla-spooldir", {"log": "/a"}, ["key"]),
            ("ottla-spooldir", {"log": "/b"}, ["key"]),
        )
    ]
    assert len(set(texts)) == len(texts)
