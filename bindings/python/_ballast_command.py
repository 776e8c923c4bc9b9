"""The command `ballast`. A module outside the package: importing that takes longer than most commands run."""

import os
import sys


def main() -> None:
    """Replace this process by the program `ballast` of the package."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ballast", "bin", "ballast")
    arguments = sys.argv[1:]
    if any(argument.startswith(("--text", "--calibration-text")) for argument in arguments):
        from ballast._text_option import with_tokens  # the program has no tokenizer

        arguments = with_tokens(program, arguments)
    try:
        os.execv(program, ["ballast", *arguments])
    except OSError as error:
        print(f"ballast: {program}: {error.strerror}", file=sys.stderr)
        sys.exit(127)
