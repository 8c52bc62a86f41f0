"""The entry point of `ottla` starts a broker without modules that only tests need."""

import subprocess
import sys

HELP_OF_SERVE = """
import sys
from ottla.cli.main import main

sys.argv = ["ottla", "serve", "--help"]
try:
    main()
except SystemExit:
    pass
import kio.static.primitive
print([name for name, module in sys.modules.items() if name.partition(".")[0] == "hypothesis" and module])
"""


def test_a_broker_does_not_load_hypothesis() -> None:
    output = subprocess.run([sys.executable, "-c", HELP_OF_SERVE], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines()[-1] == "[]"
