"""`ottla features`: describe, upgrade, downgrade."""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_option, parse_pairs
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ottla.admin.features import Feature

app = typer.Typer(help="The feature levels of a cluster: describe, upgrade, downgrade.", no_args_is_help=True)

_Levels = Annotated[
    list[str],
    typer.Argument(metavar="NAME=LEVEL...", help="E.g. transaction.version=2, or metadata.version=4.3."),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only ask the controller whether it would do it.")]


@app.command()
def describe(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the level of each feature, and the levels that all brokers support."""
    from ottla.admin.cluster import Cluster
    from ottla.admin.features import describe_features

    features = describe_features(Cluster(bootstrap))
    if as_json:
        print_json(*(feature._asdict() for feature in features))
    else:
        print_table(["FEATURE", "LEVEL", "SUPPORTED"], [_row(feature) for feature in features])


def _row(feature: "Feature") -> tuple[str, str, str]:
    from ottla.admin.features import level_text

    supported = str(feature.highest)
    if feature.lowest != feature.highest:
        supported = f"{feature.lowest}-{feature.highest}"
    return feature.name, level_text(feature.name, feature.level), supported


@app.command()
def upgrade(
    levels: _Levels,
    dry_run: _DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Raise feature levels, once all nodes run the release that supports them. All levels are changed, or none."""
    _update(bootstrap, levels, is_downgrade=False, is_dry_run=dry_run, as_json=as_json)


@app.command()
def downgrade(
    levels: _Levels,
    dry_run: _DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Lower feature levels, for instance before an older release joins the cluster. Level 0 turns a feature off."""
    _update(bootstrap, levels, is_downgrade=True, is_dry_run=dry_run, as_json=as_json)


def _update(
    bootstrap: str, levels: list[str], *, is_downgrade: bool, is_dry_run: bool, as_json: bool
) -> None:
    from ottla.admin.cluster import Cluster
    from ottla.admin.features import level_text, parse_level, update_features

    wanted = {
        name: parse_option("NAME=LEVEL", lambda text, name=name: parse_level(name, text), text)  # type: ignore[misc]
        for name, text in parse_pairs("NAME=LEVEL", levels).items()
    }
    changes = update_features(Cluster(bootstrap), wanted, is_downgrade=is_downgrade, is_dry_run=is_dry_run)
    for name, before, after in changes:
        if as_json:
            print_json(
                {
                    "feature": name,
                    "before": before,
                    "level": after,
                    "changed": not is_dry_run and before != after,
                }
            )
        elif before == after:
            print(f"{name} has level {level_text(name, after)} already")
        else:
            verb = "would go" if is_dry_run else "went"
            print(f"{name} {verb} from level {level_text(name, before)} to {level_text(name, after)}")
