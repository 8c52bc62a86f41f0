"""The entry point of `ottla`. It runs `serve` itself, without Typer, so that a broker starts faster."""

import gc
import sys


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] in (["serve"], ["format"]):
        _hide_hypothesis()
    if arguments[:1] == ["serve"]:
        gc.disable()  # imports make no garbage; the broker enables it when it is ready
        from ottla.cli.serve import serve

        sys.exit(serve(arguments[1:]))
    from ottla.cli.app import run

    sys.exit(run())


def _hide_hypothesis() -> None:
    """Makes `import hypothesis` fail in this process, as if it were not installed.

    kio imports it wherever it is installed, to register strategies. That takes a third of a broker's start in a test
    environment.
    """
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
