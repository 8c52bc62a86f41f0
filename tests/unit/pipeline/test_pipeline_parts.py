"""spark-submit, validation, the orders of the tour, and signals and stderr of a run."""

import json
import os
import signal
import zipfile
from pathlib import Path
from random import Random

import pytest
from tests.unit.pipeline.fake_stages import FakeStage

from ottla.admin.signal_flag import SignalFlag
from ottla.pipeline import spark_submit
from ottla.pipeline.config import Pipeline, SparkSettings
from ottla.pipeline.demo.orders import ORDERS_PER_FILE, next_number, order, order_generator, write_file
from ottla.pipeline.demo.tour import at_address, guide
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.foreground import set_by_signals, stderr_to
from ottla.pipeline.runner import check_spark
from ottla.pipeline.stage import ClusterSettings, Context, Finding
from ottla.pipeline.validation import check_checkpoints, check_master, check_stage


def pipeline_in(folder: Path, **spark: object) -> Pipeline:
    context = Context("shop", ClusterSettings("b:1"), folder, "checkpoints")
    return Pipeline(folder / "pipeline.toml", context, SparkSettings(**spark), {}, ())  # type: ignore[arg-type]


def test_the_zip_has_the_package_and_the_module_that_spark_imports(tmp_path: Path) -> None:
    archive, job = spark_submit.write_attachments(pipeline_in(tmp_path))
    names = zipfile.ZipFile(archive).namelist()
    assert {"pyspark_ottla.py", "ottla/__init__.py", "ottla/pipeline/spark/source.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    assert "main()" in job.read_text()
    assert spark_submit.write_attachments(pipeline_in(tmp_path)) == (archive, job)


def test_the_command_of_spark_submit(tmp_path: Path) -> None:
    (tmp_path / "transforms.py").write_text("")
    pipeline = pipeline_in(tmp_path, master="yarn", conf={"spark.ui.enabled": False})
    line = spark_submit.submit_command(
        pipeline, Path("o.zip"), Path("job.py"), None, once=True, more=["--queue", "q"]
    )
    assert line == [
        *("spark-submit", "--master", "yarn", "--name", "ottla shop", "--conf", "spark.ui.enabled=false"),
        *("--py-files", f"o.zip,{tmp_path}/transforms.py", "--queue", "q", "job.py"),
        *("pipeline", "run", "--plain", "--master", "yarn", "--file", f"{tmp_path}/pipeline.toml", "--once"),
    ]
    assert "spark://h:1" in spark_submit.submit_command(
        pipeline, Path("o.zip"), Path("job.py"), "spark://h:1"
    )


def test_spark_submit_is_found_or_named(tmp_path: Path) -> None:
    import pyspark  # noqa: F401  # which brings spark-submit

    home = spark_submit.submit_environment({"PATH": os.environ["PATH"], "PYSPARK_PYTHON": "mine"})
    assert home["PYSPARK_PYTHON"] == "mine"
    assert Path(spark_submit.find_spark_submit(home)).name == "spark-submit"
    for environment in ({}, {"SPARK_HOME": str(tmp_path)}):
        with pytest.raises(PipelineError, match="There is no spark-submit"):
            spark_submit.find_spark_submit(environment)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "submit").write_text("a file")
    with pytest.raises(PipelineError, match="cannot be written to"):
        spark_submit.write_attachments(pipeline_in(tmp_path))


def test_findings_before_an_error_of_the_check_are_kept() -> None:
    stage = FakeStage("a")
    stage.found = [Finding("[sources.a]", "One.", "Do.")]
    stage.error = PipelineError("Two.", "Do.")
    assert [finding.what for finding in check_stage(stage)] == ["One.", "Two."]
    stage.error = ValueError("three")
    assert [finding.what for finding in check_stage(stage)] == ["One.", "ValueError: three."]


def test_checkpoints_on_this_machine_are_a_warning_on_a_cluster(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    assert list(check_checkpoints(pipeline, None)) == []
    (warning,) = check_checkpoints(pipeline, "spark://h:1")
    assert warning.is_warning
    (tmp_path / "checkpoints").write_text("a file")
    (finding,) = check_checkpoints(pipeline, None)
    assert "is not a folder" in finding.what


def test_a_spark_master_that_does_not_respond_is_named() -> None:
    (finding,) = check_master("spark://127.0.0.1:1")
    assert "No Spark master responds at spark://127.0.0.1:1" in finding.what


def test_orders_are_written_as_complete_files_and_continue_after_a_restart(tmp_path: Path) -> None:
    assert next_number(tmp_path) == 0
    write_file(tmp_path, 0, Random(1))
    (file,) = tmp_path.iterdir()
    assert len(file.read_text().splitlines()) == ORDERS_PER_FILE
    file.rename(tmp_path / f"{file.name}.done")
    assert next_number(tmp_path) == 1


def test_some_orders_are_invalid() -> None:
    random = Random(7)
    lines = [order(number, random) for number in range(5000)]
    good, empty, torn = 0, 0, 0
    for line in lines:
        try:
            is_empty = json.loads(line)["quantity"] == 0
        except ValueError:
            torn += 1
        else:
            empty, good = empty + is_empty, good + (not is_empty)
    assert torn > 20
    assert empty > 20
    assert good > 4800


def test_the_order_generator_stops_when_the_tour_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.pipeline.demo.orders.PAUSE_S", 0.0)
    spool = tmp_path / "spool"
    with order_generator(spool):
        while not list(spool.glob("orders-*")):
            pass
    count = len(list(spool.iterdir()))
    assert not [file for file in spool.iterdir() if file.name.startswith(".")]
    assert len(list(spool.iterdir())) == count


def test_the_guide_names_the_brokers_address_if_it_is_not_the_default(tmp_path: Path) -> None:
    assert "--bootstrap 127.0.0.1:9999" in guide(tmp_path, "127.0.0.1:9999")
    assert "--bootstrap" not in guide(tmp_path, "127.0.0.1:9092")
    moved = at_address(pipeline_in(tmp_path), "127.0.0.1:9999")
    assert moved.context.cluster.bootstrap == "127.0.0.1:9999"


class GoneSpark:
    @property
    def sparkContext(self) -> None:
        raise ConnectionRefusedError("nobody listens")


def test_no_stage_is_restarted_after_spark_has_ended() -> None:
    with pytest.raises(PipelineError, match="Spark has ended: ValueError"):
        check_spark(GoneSpark(), ValueError())  # type: ignore[arg-type]


def test_stderr_goes_to_the_log_while_the_table_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    for said in (b"one\n", b"two\n"):
        with stderr_to(log):
            os.write(2, said)
    assert log.read_bytes() == b"one\ntwo\n"
    with stderr_to(None):
        pass


def test_a_signal_stops_a_run_and_the_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop = SignalFlag()
    with set_by_signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
    assert signal.getsignal(signal.SIGTERM) == before
