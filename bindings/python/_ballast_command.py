"""The command `ballast`. A module outside the package: importing that takes longer than most commands run."""

import os
import sys


def main() -> None:
    """Replace this process by the program `ballast` of the package."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ballast", "bin", "ballast")
    try:
        os.execv(program, ["ballast", *sys.argv[1:]])
    except OSError as error:
        print(f"ballast: {program}: {error.strerror}", file=sys.stderr)
        sys.exit(127)
