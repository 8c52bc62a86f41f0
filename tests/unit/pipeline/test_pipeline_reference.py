"""Every setting of a pipeline.toml is documented, and what `init` writes is a pipeline."""

import dataclasses
import re
from pathlib import Path

# All kinds of stages are loaded here.
import pyarrow  # noqa: F401
import pymysql  # noqa: F401
import pyspark  # noqa: F401
import pytest
from tests.unit.pipeline.fake_stages import FakeSettings

from ottla.pipeline.config import FILE_NAME, SparkSettings, TopicSettings, load, parse
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.reference import default_of, reference_markdown, stage_sections, type_name
from ottla.pipeline.stage import ClusterSettings
from ottla.pipeline.template import PIPELINE, write_template

PAGE = Path(__file__).parents[3] / "docs" / "pipeline" / "settings.md"
GUIDE = Path(__file__).parents[3] / "docs" / "pipeline.md"


def test_every_setting_says_what_it_does() -> None:
    settings = [ClusterSettings, SparkSettings, TopicSettings, *(kind for _, kind in stage_sections())]
    for kind in settings:
        for field in dataclasses.fields(kind):
            assert field.metadata.get("doc"), f"{kind.__name__}.{field.name}"


def test_the_page_of_settings_is_what_the_command_writes() -> None:
    assert PAGE.read_text() == reference_markdown(), (
        "run: ottla pipeline reference > docs/pipeline/settings.md"
    )


def test_the_guide_shows_a_valid_pipeline(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    pipeline = parse(shown, tmp_path / FILE_NAME, {"KAFKA_PASSWORD": "x"})
    assert pipeline.names == ["files", "orders", "archive"]


def test_what_init_writes_is_a_pipeline_named_after_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    write_template(folder, "broker:1")
    pipeline = load(folder)
    assert pipeline.context.pipeline == "shop"
    assert pipeline.context.cluster.bootstrap == "broker:1"
    assert pipeline.names == ["files", "orders", "archive"]
    assert (folder / "transforms.py").exists()
    with pytest.raises(PipelineError, match="exists already"):
        write_template(folder, "broker:1")


def test_the_commented_lines_of_the_template_are_valid_too(tmp_path: Path) -> None:
    text = PIPELINE.format(name="shop", bootstrap="broker:1")
    commented = re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE)
    assert commented != text
    variables = {"KAFKA_PASSWORD": "x", "MYSQL_PASSWORD": "y"}
    assert parse(commented, tmp_path / FILE_NAME, variables).names == ["files", "shop", "orders", "archive"]


def test_a_folder_with_an_invalid_name_gets_the_default_name(tmp_path: Path) -> None:
    write_template(tmp_path / "my shop", "b:1")
    assert load(tmp_path / "my shop").context.pipeline == "orders"


def test_types_and_defaults_are_written_as_the_file_writes_them() -> None:
    fields = {field.name: field for field in dataclasses.fields(FakeSettings)}
    assert default_of(fields["topic"]) == "must be given"
    assert default_of(fields["names"]) == '`["a", "b"]`'
    assert (default_of(fields["options"]), default_of(fields["password"])) == ("none", "none")
    assert type_name(str | tuple[str, ...]) == "text or list of text"
    assert type_name(dict[str, int]) == "table"
