"""Metrics in the text formats of Prometheus and OpenMetrics.

A `Family` describes a metric: name, type, labels and meaning. A `Collector` writes the samples of some families when
they are asked for. The formats differ only in the header of a family and in the end of the text, so samples are written
once, whichever format a client asks for. The package has no clock and no I/O.
"""

from ottla.metrics.collector import Collection, Collector, GaugeCollector
from ottla.metrics.family import Family, FamilyError, Kind, check_families, reference_table
from ottla.metrics.histogram import Histogram
from ottla.metrics.http import HttpRequest, HttpRequestError, RequestReader, respond
from ottla.metrics.quantiles import RecentQuantiles
from ottla.metrics.text import OPEN_METRICS, PROMETHEUS, TextFormat, choose_format, labels, line

__all__ = [
    "OPEN_METRICS",
    "PROMETHEUS",
    "Collection",
    "Collector",
    "Family",
    "FamilyError",
    "GaugeCollector",
    "Histogram",
    "HttpRequest",
    "HttpRequestError",
    "Kind",
    "RecentQuantiles",
    "RequestReader",
    "TextFormat",
    "check_families",
    "choose_format",
    "labels",
    "line",
    "reference_table",
    "respond",
]
