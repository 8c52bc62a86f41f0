"""The jars with which Spark reaches s3a://, fetched once through Maven.

They are Hadoop's client and the parts of Amazon's that it needs, without the bundle of several hundred megabytes.
"""

import fcntl
import shutil
import subprocess
from functools import cache
from pathlib import Path

SDK = "2.35.4"
COORDINATES = (
    ("software.amazon.awssdk", "s3", SDK),
    ("software.amazon.awssdk", "s3-transfer-manager", SDK),
    ("software.amazon.awssdk", "sts", SDK),
    ("software.amazon.awssdk", "netty-nio-client", SDK),
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
)
HADOOP = ("org.apache.hadoop", "hadoop-aws", "3.5.0")
# pyspark brings its own.
NOT_WANTED = ("netty-buffer", "netty-c", "netty-h", "netty-r", "netty-t", "slf4j-", "commons-logging")
CACHE = Path(__file__).parents[2] / ".cache" / "s3-jars"
FETCH_TIMEOUT_S = 600


@cache
def s3_jars() -> list[Path] | str:
    """The jars, or the reason why there are none."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        # Two test workers may come here at once: the second waits for the first and finds the jars.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (CACHE / "libs").is_dir():
            reason = fetch()
            if reason:
                return reason
    return sorted(jar for jar in (CACHE / "libs").glob("*.jar") if not jar.name.startswith(NOT_WANTED))


def fetch() -> str:
    """The reason why it failed, if it did."""
    if shutil.which("mvn") is None:
        return "no `mvn` on the PATH: the jars for S3 come from Maven"
    shutil.rmtree(CACHE / "partial", ignore_errors=True)
    (CACHE / "pom.xml").write_text(pom())
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            [*command, "-DoutputDirectory=partial"],
            cwd=CACHE,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Maven did not bring the jars for S3 within {FETCH_TIMEOUT_S} s"
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        return f"Maven could not fetch the jars for S3: {said[0] if said else 'it gave no reason'}"
    (CACHE / "partial").rename(CACHE / "libs")
    return ""


def pom() -> str:
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(dependency(*one) for one in COORDINATES) + dependency(*HADOOP, alone)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "<modelVersion>4.0.0</modelVersion>\n"
        "<groupId>ottla</groupId><artifactId>spark-s3</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )


def dependency(group: str, artifact: str, version: str, more: str = "") -> str:
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{more}</dependency>\n"
    )
