"""The command line: `python -m ballast inspect model.safetensors`."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Replace this process by the program `ballast` of the package."""
    program = Path(__file__).with_name("bin") / "ballast"
    try:
        os.execv(program, ["ballast", *sys.argv[1:]])
    except OSError as error:
        print(f"ballast: {program}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
