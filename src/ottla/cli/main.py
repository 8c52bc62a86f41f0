"""The entry point of `ottla`. `serve` is taken before the command framework is imported: a broker starts faster
without it."""

import gc
import sys


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        gc.disable()  # nothing that is loaded now becomes garbage; the broker switches it on when it is ready
        from ottla.cli.serve import serve

        sys.exit(serve(arguments[1:]))
    from ottla.cli.app import run

    sys.exit(run())


if __name__ == "__main__":
    main()
