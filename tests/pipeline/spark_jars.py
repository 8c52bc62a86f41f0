"""The jars of Spark's own Kafka connector, which pyspark does not bring, fetched once through Maven.

To run it beside ours: what one can do with `format("kafka")` on Ottla, and how fast.
"""

import fcntl
import shutil
import subprocess
from functools import cache
from pathlib import Path

# The token provider exists in this version only, and works with the others.
COORDINATES = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
CACHE = Path(__file__).parents[2] / ".cache" / "spark-jars"
FETCH_TIMEOUT_S = 600


@cache
def spark_jars() -> list[Path] | str:
    """The jars, or the reason why there are none."""
    CACHE.mkdir(parents=True, exist_ok=True)
    jars = [CACHE / f"{artifact}-{version}.jar" for _, artifact, version in COORDINATES]
    with (CACHE / "lock").open("w") as lock:
        # Two test workers may come here at once: the second waits for the first and finds the jars.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(jar.is_file() for jar in jars):
            return jars
        if shutil.which("mvn") is None:
            return "no `mvn` on the PATH: the jars of Spark's Kafka connector come from Maven"
        return fetched(jars)


def fetched(jars: list[Path]) -> list[Path] | str:
    (CACHE / "pom.xml").write_text(pom())
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={CACHE}"]
    try:
        done = subprocess.run(
            command, cwd=CACHE, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"Maven did not bring the jars of Spark's Kafka connector within {FETCH_TIMEOUT_S} s"
    if done.returncode != 0 or not all(jar.is_file() for jar in jars):
        said = (done.stdout + done.stderr).strip().splitlines()
        return f"Maven could not fetch Spark's Kafka connector: {said[0] if said else 'it gave no reason'}"
    return jars


def pom() -> str:
    """Each jar alone: what they need besides is in pyspark."""
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{alone}</dependency>\n"
        for group, artifact, version in COORDINATES
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "<modelVersion>4.0.0</modelVersion>\n"
        "<groupId>ottla</groupId><artifactId>spark-kafka</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )
