"""The logic of a transform from its file: its errors are reported before Spark starts."""

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StructType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.settings import read_settings
from ottla.pipeline.transform.logic import load_function, load_module, load_sql
from ottla.pipeline.transform.parts.record_functions import guarded
from ottla.pipeline.transform.parts.structs import flat_names
from ottla.pipeline.transform.settings import TransformSettings
from ottla.pipeline.transform.stage import contradictions


def load_error(folder: Path, source: str, reference: str = "t.py:clean", **options: object) -> str:
    (folder / "t.py").write_text(source)
    with pytest.raises(PipelineError) as raised:
        load_function(folder, reference, options)
    return str(raised.value)


def test_a_file_that_python_cannot_read_is_named_with_its_line(tmp_path: Path) -> None:
    said = load_error(tmp_path, "x = 1\ndef clean(raw:\n")
    assert f"{tmp_path / 't.py'}, line 2: '(' was never closed." in said


def test_a_file_that_raises_is_named_with_its_line(tmp_path: Path) -> None:
    said = load_error(tmp_path, "x = 1\n\nimport no_such_package\n")
    assert "t.py, line 3, raised ModuleNotFoundError: No module named 'no_such_package'." in said


def test_a_missing_function_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    assert load_error(tmp_path, "def claen(raw): ...\n").endswith(
        "no function `clean`. Did you mean `claen`?"
    )
    assert load_error(tmp_path, "").endswith("It has: none.")
    assert "is int, not a function" in load_error(tmp_path, "clean = 5\n")


@pytest.mark.parametrize("reference", ["", "clean", "t.py", "t.py:", "t:clean", "t.py:1"])
def test_an_invalid_reference_is_rejected(tmp_path: Path, reference: str) -> None:
    assert "Write FILE.py:FUNCTION" in load_error(tmp_path, "def clean(raw): ...\n", reference)


def test_options_must_be_parameters_of_the_function(tmp_path: Path) -> None:
    source = "def clean(raw, *, smallest): ...\n"
    assert "options none: missing a required argument: 'smallest'." in load_error(tmp_path, source)
    assert "got an unexpected keyword argument 'larget'" in load_error(tmp_path, source, smallest=1, larget=2)


def test_files_that_are_missing_or_empty_are_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"gone\.py cannot be read"):
        load_function(tmp_path, "gone.py:clean", {})
    with pytest.raises(PipelineError, match=r"gone\.sql cannot be read"):
        load_sql(tmp_path / "gone.sql", {})
    (tmp_path / "empty.sql").write_text("\n")
    with pytest.raises(PipelineError, match=r"empty\.sql is empty"):
        load_sql(tmp_path / "empty.sql", {})


def test_functions_are_pickled_by_value_and_read_at_every_load(tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    path.write_text("def one(): return 1\n")
    module = load_module(path)
    pickled = cloudpickle.dumps(module.one)
    del sys.modules[module.__name__]
    assert cloudpickle.loads(pickled)() == 1
    path.write_text("def one(): return 2\n")
    assert load_module(path).one() == 2


def test_from_is_one_topic_or_a_list() -> None:
    one = read_settings(TransformSettings, {"from": "raw", "to": "t", "sql": "q"}, "[transforms.x]")
    two = read_settings(TransformSettings, {"from": ["a", "b"], "to": "t", "sql": "q"}, "[transforms.x]")
    assert (one.topics, two.topics) == (("raw",), ("a", "b"))
    with pytest.raises(PipelineError, match="`from` is 5"):
        read_settings(TransformSettings, {"from": 5, "to": "t"}, "[transforms.x]")
    with pytest.raises(PipelineError, match="has no `from`"):
        read_settings(TransformSettings, {"to": "t"}, "[transforms.x]")


def test_lost_records_stop_a_transform_unless_its_settings_allow_them() -> None:
    table: dict[str, Any] = {"from": "raw", "to": "to", "sql": "q.sql"}
    assert read_settings(TransformSettings, table, "[transforms.x]").fail_on_data_loss
    table["fail_on_data_loss"] = False
    assert not read_settings(TransformSettings, table, "[transforms.x]").fail_on_data_loss


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "neither `function` nor `sql`"),
        ({"function": "t.py:f", "sql": "q.sql"}, "both `function` and `sql`"),
        ({"sql": "q", "to": "raw"}, "`to` is raw, which the transform reads"),
        ({"sql": "q", "dead_letters": "raw"}, "`dead_letters` is raw, which the transform reads"),
        ({"sql": "q", "dead_letters": "to"}, "are both to"),
        ({"sql": "q", "max_records_per_batch": 0}, "is 0"),
        ({"sql": "q", "from_": ()}, "names no topic"),
    ],
)
def test_settings_that_contradict_each_other_are_found(table: dict[str, object], said: str) -> None:
    settings = TransformSettings(**{"from_": "raw", "to": "to", **table})  # type: ignore[arg-type]
    [(what, _)] = contradictions(settings)
    assert said in what


def test_valid_settings_have_no_contradictions() -> None:
    assert not list(contradictions(TransformSettings(from_="raw", to="to", sql="q", dead_letters="dead")))


def test_two_fields_with_one_flat_name_are_rejected() -> None:
    nested = StructType().add("b", LongType())
    schema = StructType().add("a", nested).add("c", LongType())
    assert dict(flat_names(schema, "_")) == {"a_b": ("a", "b"), "c": ("c",)}
    with pytest.raises(PipelineError, match=r"`a\.b` and `a_b` would both be `a_b`"):
        list(flat_names(schema.add("a_b", LongType()), "_"))


def test_a_guarded_function_returns_its_result_or_the_reason() -> None:
    call = guarded(lambda text: int(text), LongType())
    assert call(False, "7") == (7, None)
    assert call(False, "x")[1] == "ValueError: invalid literal for int() with base 10: 'x'"
    assert call(True, "x") == (None, None)
    _, reason = guarded(lambda _: "text", LongType())(False, "7")
    assert reason is not None
    assert "LongType" in reason
