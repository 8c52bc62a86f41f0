"""Reading a pipeline.toml, and the errors of one that is wrong."""

import re
from pathlib import Path

import pytest
from tests.unit.pipeline.fake_stages import FakeSettings, FakeStage

from ottla.pipeline import config, stage_registry
from ottla.pipeline.config import ConfigErrors, Pipeline, load, parse, with_variables
from ottla.pipeline.errors import PipelineError

PATH = Path("somewhere/pipeline.toml")
WHOLE = """
name = "shop"

[cluster]
bootstrap = "127.0.0.1:9092"
properties = { "sasl.password" = "${SECRET}", "enable.ssl" = true }

[spark]
master = "local[2]"
conf = { "spark.sql.shuffle.partitions" = 4 }

[topics.raw]
partitions = 3
configs = { "retention.ms" = 1000 }

[sinks.archive]
topic = "raw"

[sources.files]
kind = "fake"
topic = "raw"
from = "x"
size = 4
names = ["c"]
"""


@pytest.fixture(autouse=True)
def fake_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = f"{FakeStage.__module__}:{FakeStage.__qualname__}"
    monkeypatch.setattr(
        stage_registry,
        "STAGE_CLASSES",
        {"sources": {"fake": fake, "other": fake}, "transforms": {"fake": fake}, "sinks": {"fake": fake}},
    )


def read(text: str) -> Pipeline:
    return parse(text, PATH, {"SECRET": "hush"})


def findings(text: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        read(text)
    return [f"{where}: {what} {remedy}" for where, what, remedy, _ in caught.value.findings]


def with_stage(text: str) -> str:
    return text + "\n[sinks.s]\ntopic = 't'\n"


CLUSTER = "[cluster]\nbootstrap = 'b:1'\n"


def test_a_whole_file_becomes_a_pipeline() -> None:
    pipeline = read(WHOLE)
    assert pipeline.context.pipeline == "shop"
    assert pipeline.context.cluster.client_config() == {
        "bootstrap.servers": "127.0.0.1:9092",
        "sasl.password": "hush",
        "enable.ssl": "true",
    }
    assert pipeline.context.topics == {"raw"}
    assert pipeline.topics["raw"].partitions == 3
    assert (pipeline.spark.master, pipeline.spark.checkpoints) == ("local[2]", "checkpoints")
    assert [(item.group, item.name, item.kind) for item in pipeline.declared] == [
        ("sources", "files", "fake"),
        ("sinks", "archive", "fake"),
    ]
    assert pipeline.declared[0].settings == FakeSettings("raw", "x", 4, ("c",))


def test_a_stage_is_required_unless_the_file_says_otherwise() -> None:
    pipeline = read(WHOLE + "required = false\n")
    assert [(item.name, item.required) for item in pipeline.declared] == [("files", False), ("archive", True)]
    assert findings(WHOLE + "required = 1\n") == [
        "somewhere/pipeline.toml, line 19: [sources.files]: `required` is 1. It takes true or false."
    ]


def test_stages_are_created_sources_first_or_one_alone_by_its_name() -> None:
    pipeline = read(WHOLE)
    assert list(pipeline.stages()) == ["files", "archive"]
    assert list(pipeline.stages("archive")) == ["archive"]
    with pytest.raises(PipelineError, match=r"has no stage `files2`.*It has: files, archive"):
        pipeline.stages("files2")


def test_a_stage_is_found_among_its_groups_only() -> None:
    assert read(WHOLE).find("archive", "sinks").name == "archive"
    with pytest.raises(PipelineError, match=r"among its transforms"):
        read(WHOLE).find("archive", "transforms")


def test_reset_sink_and_accept_plan_become_options_of_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}

    class Writer:
        def options(self, **options: str) -> "Writer":
            given.update(options)
            return self

        def option(self, name: str, value: str) -> "Writer":
            return self.options(**{name: value})

        def queryName(self, name: str) -> "Writer":
            return self

    monkeypatch.setattr("ottla.pipeline.spark.exactly_once", lambda rows, sink_id: Writer(), raising=False)
    stage = '[sources.a]\nkind = "fake"\ntopic = "raw"\n'
    context = read(f'{CLUSTER}{stage}reset_sink = "q-1"\naccept_plan = "p-1"').context
    context.to_topics(None, "a")  # type: ignore[arg-type]
    assert (given["resetSink"], given["acceptPlan"]) == ("q-1", "p-1")
    assert findings(f"{CLUSTER}{stage}reset_sink = 3")
    assert read(f"{CLUSTER}{stage}").context.sink_options["a"] == {}


def test_the_default_name_is_the_folders(tmp_path: Path) -> None:
    folder = tmp_path / "orders-1"
    folder.mkdir()
    (folder / "pipeline.toml").write_text(with_stage(CLUSTER))
    assert load(folder).context.pipeline == "orders-1"
    assert load(folder / "pipeline.toml").context.folder == folder


def test_all_errors_are_reported_at_once_with_their_tables_and_lines() -> None:
    text = """
[clutter]
[cluster]
bootstrap = 1
[sources.a]
kind = "fake"
[sources.b]
kind = "none"
[sources.c]
[transforms.a]
topic = "t"
typo = 1
[sinks."b c"]
topic = "t"
size = 5
"""
    found = findings(text)
    expected = [
        "pipeline.toml: .*does not know the setting `clutter`. Did you mean `cluster`",
        r"line 3: \[cluster\]: `bootstrap` is 1. It takes text",
        r"line 5: \[sources.a\] has no `topic`. Add it: the topic",
        r"line 7: \[sources.b\]: There is no kind 'none' of sources. Choose one of: fake, other",
        r"line 9: \[sources.c\]: It has no `kind`. Choose one of: fake, other",
        r"line 10: \[transforms.a\]: The name `a` is also that of \[sources.a\]",
        r"line 10: \[transforms.a\] does not know the setting `typo`. ",
        r"line 13: \[sinks.b c\]: A stage cannot be named 'b c'. Use letters",
        r"line 13: \[sinks.b c\]: `size` is 5. Choose one of: 3, 4",
    ]
    assert len(found) == len(expected), found
    for sentence, pattern in zip(found, expected, strict=True):
        assert re.search(pattern, sentence), sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CLUSTER, "It has no stage. Add a [sources.NAME]"),
        (with_stage("name = 'a b'\n" + CLUSTER), "The pipeline's `name` is 'a b'. Use letters"),
        (with_stage("topics = 3\n" + CLUSTER), "[topics]: It is not a table"),
        (with_stage("cluster = 3"), "[cluster]: It is not a table"),
        ("sources = { a = 1 }\n" + CLUSTER, "[sources.a]: It is not a table"),
        (with_stage(""), "[cluster] has no `bootstrap`"),
        (
            with_stage("[cluster]\nbootstrap = '${NOT_SET}'\n"),
            "The environment has no variable NOT_SET, which the file uses as ${NOT_SET}",
        ),
    ],
)
def test_an_error_is_named(text: str, said: str) -> None:
    assert any(said in finding for finding in findings(text)), findings(text)


def test_a_toml_error_is_reported_with_its_line() -> None:
    with pytest.raises(PipelineError, match=r"pipeline.toml is not TOML: .*line 2"):
        read("a = 1\nb = \n")


def test_the_error_for_a_missing_file_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"No such file.*ottla pipeline init"):
        load(tmp_path)


def test_the_error_for_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name}", name="pymysql.cursors")

    monkeypatch.setattr("ottla.pipeline.stage_registry.importlib.import_module", fail)
    assert "pip install 'ottla[cdc]'" in findings(WHOLE)[0]


def test_variables_are_replaced_in_any_text_and_can_be_escaped() -> None:
    table = {"a": ["x${V}y", 1], "b": {"c": "$${V} $V"}}
    assert with_variables(table, {"V": "1"}) == {"a": ["x1y", 1], "b": {"c": "${V} $V"}}


def test_all_tables_of_the_file_are_those_that_are_read() -> None:
    assert set(config.TABLES) == {"name", "cluster", "spark", "topics", "sources", "transforms", "sinks"}
