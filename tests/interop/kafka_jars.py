"""Apache Kafka's own jars, found or fetched by their Maven coordinates, to run the original beside Ottla.

`OTTLA_KAFKA_LIBS` names a folder that has them already. Otherwise Maven puts them once into `.cache/kafka`.
"""

import fcntl
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

KAFKA_VERSION = "4.3.1"
JAVA_VERSION_MIN = 17
COORDINATES = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)
CACHE = Path(__file__).parents[2] / ".cache" / "kafka"
LOG4J_CONFIG = Path(__file__).parent / "java" / "log4j2.properties"
FETCH_TIMEOUT_S = 600
# One collector thread and the quick compiler: a tool runs for a second, and a node in a test does little.
QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
TOOL_JVM = ("-Xmx256m", *QUICK_JVM)
# Kafka's classes, parsed and verified: with them a tool needs half the processor time (tests/interop/class_archive.py).
CLASS_ARCHIVE = CACHE / f"classes-{KAFKA_VERSION}.jsa"


def ensure_jars() -> Path | None:
    """The folder of the jars, fetched if necessary; None if they are not available (see `why_no_jars`)."""
    found = _look()
    return found if isinstance(found, Path) else None


def why_no_jars() -> str:
    found = _look()
    return "" if isinstance(found, Path) else found


def java_command(
    libs: Path, main_class: str, *args: str, classpath: str = "", jvm: tuple[str, ...] = TOOL_JVM
) -> list[str]:
    """The command line that runs one of Kafka's classes (or, with `classpath`, one of ours beside them)."""
    path = f"{libs}/*:{classpath}" if classpath else f"{libs}/*"
    if jvm[-len(QUICK_JVM) :] == QUICK_JVM and CLASS_ARCHIVE.exists():
        # An archive that does not fit is ignored; the JVM would print a warning to the standard output.
        jvm += (f"-XX:SharedArchiveFile={CLASS_ARCHIVE}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    return ["java", *jvm, f"-Dlog4j2.configurationFile={LOG4J_CONFIG}", "-cp", path, main_class, *args]


@cache
def _look() -> Path | str:
    """The folder, or the reason why there is none."""
    reason = _why_java_does_not_serve()
    if reason:
        return reason
    given = os.environ.get("OTTLA_KAFKA_LIBS")
    if given:
        if _is_complete(Path(given)):
            return Path(given)
        return f"OTTLA_KAFKA_LIBS={given} does not hold the jars of Apache Kafka {KAFKA_VERSION}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        # Two test workers may need the jars at once: the second waits for the first and finds them.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _fetch_once(CACHE / f"libs-{KAFKA_VERSION}")


def _why_java_does_not_serve() -> str:
    if shutil.which("java") is None:
        return "no `java` on the PATH: Apache Kafka needs a Java runtime"
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        said = shown.partition("\n")[0] or "nothing"
        return (
            f"Apache Kafka {KAFKA_VERSION} needs Java {JAVA_VERSION_MIN} or newer; java -version says {said}"
        )
    return ""


def _is_complete(libs: Path) -> bool:
    return all((libs / f"{artifact}-{version}.jar").is_file() for _, artifact, version in COORDINATES[:2])


def _fetch_once(libs: Path) -> Path | str:
    if _is_complete(libs):
        return libs
    if shutil.which("mvn") is None:
        return "no `mvn` on the PATH: Apache Kafka's jars come from Maven (or set OTTLA_KAFKA_LIBS)"
    partial = CACHE / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    (partial / "pom.xml").write_text(_pom())
    command = [
        "mvn",
        "-q",
        "-B",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        "-DoutputDirectory=libs",
    ]
    try:
        fetched = subprocess.run(
            command, cwd=partial, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"Maven did not bring Apache Kafka {KAFKA_VERSION}'s jars within {FETCH_TIMEOUT_S} s"
    if fetched.returncode != 0 or not _is_complete(partial / "libs"):
        said = (fetched.stdout + fetched.stderr).strip().splitlines()
        return (
            f"Maven could not fetch Apache Kafka {KAFKA_VERSION}: {said[0] if said else 'it gave no reason'}"
        )
    (partial / "libs").rename(libs)
    shutil.rmtree(partial)
    return libs


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>\n"
        for group, artifact, version in COORDINATES
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "<modelVersion>4.0.0</modelVersion>\n"
        "<groupId>ottla</groupId><artifactId>kafka-oracle</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )
