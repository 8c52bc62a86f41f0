"""The text format of Prometheus (version 0.0.4), and that of OpenMetrics (version 1.0.0)."""

from typing import NamedTuple

from ottla.metrics.family import Family

_OPEN_METRICS_VERSIONS = ("", "0.0.1", "1.0.0")


class TextFormat(NamedTuple):
    content_type: str
    uses_base_names: bool  # in the header of a family
    end: str

    def header(self, family: Family) -> str:
        name = family.base_name if self.uses_base_names else family.name
        return f"# HELP {name} {_escape_help(family.meaning)}\n# TYPE {name} {family.kind.value}\n"


PROMETHEUS = TextFormat("text/plain; version=0.0.4; charset=utf-8", uses_base_names=False, end="")
OPEN_METRICS = TextFormat(
    "application/openmetrics-text; version=1.0.0; charset=utf-8", uses_base_names=True, end="# EOF\n"
)


def line(name: str, labels_text: str, value: float) -> str:
    """A sample. Python writes numbers, also inf and nan, as both formats read them."""
    return f"{name}{labels_text} {value}\n"


def labels(**values: object) -> str:
    """The labels of a sample, with braces."""
    pairs = ",".join(f'{name}="{_escape_value(str(value))}"' for name, value in values.items())
    return f"{{{pairs}}}"


def _escape_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', "'")


def choose_format(accept: str) -> TextFormat:
    """The format for the value of an Accept header: Prometheus' own, unless the client prefers OpenMetrics."""
    open_metrics, prometheus = 0.0, 0.0
    for media_range in accept.split(","):
        media_type, *parameters = (part.strip().lower() for part in media_range.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        quality = _quality(values.get("q", "1"))
        if (
            media_type == "application/openmetrics-text"
            and values.get("version", "") in _OPEN_METRICS_VERSIONS
        ):
            open_metrics = max(open_metrics, quality)
        elif media_type in ("text/plain", "text/*", "*/*"):
            prometheus = max(prometheus, quality)
    return OPEN_METRICS if open_metrics > 0 and open_metrics >= prometheus else PROMETHEUS


def _quality(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0
