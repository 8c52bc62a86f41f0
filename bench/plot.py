"""Draws the ratios: a bar per metric, a tick at its target, a line where both brokers are equal."""

from collections.abc import Sequence
from pathlib import Path

from bench.runner import Series

REACHED, MISSED, NO_TARGET = "#2a9d8f", "#e76f51", "#8d99ae"


def draw(target: Path, found: Sequence[Series]) -> bool:
    """Writes `target`.png; False if matplotlib (the `bench` extra) is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    ratios = [(series, series.ratio) for series in found if series.ratio is not None]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.32 * len(ratios)), layout="constrained")
    for place, (series, ratio) in enumerate(reversed(ratios)):
        goal = series.metric.target
        colour = NO_TARGET if goal is None else REACHED if ratio >= goal else MISSED
        axes.barh(place, ratio, color=colour)
        axes.text(ratio, place, f" {ratio:.2f}x", va="center", fontsize=8)
        if goal is not None:
            axes.plot([goal, goal], [place - 0.4, place + 0.4], color="black", linewidth=2)
    axes.axvline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(
        range(len(ratios)), [f"{s.scenario.name}: {s.metric.name}" for s, _ in reversed(ratios)], fontsize=8
    )
    axes.set_xscale("log")
    axes.set_xlabel("times better than Apache Kafka (tick: target)")
    figure.savefig(target.with_suffix(".png"), dpi=120)
    pyplot.close(figure)
    return True
