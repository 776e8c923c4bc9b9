"""The options --text and --calibration-text of the command `ballast`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np

from ballast._errors import ArgumentError, BallastError, CancelledError, CorruptError, WriteError, one_line
from ballast._tensor import Array
from ballast._tokenizer import ids_of_text

_USAGE, _BAD_INPUT, _BAD_OUTPUT, _INTERRUPTED = 2, 3, 4, 130
#: The options that are for text, those for token ids in their place, and what the program refuses beside them.
_TEXT = {"--text": ("--tokens", ()), "--calibration-text": ("--calibration-tokens", ("--calibration",))}
_IN_HELP = re.compile(r"^  (-\S+)(?: ([A-Z][\w-]*))?(?:  |$)", re.MULTILINE)


@dataclass
class _Parsed:
    positionals: list[str] = field(default_factory=list)
    options: dict[str, tuple[int, str]] = field(default_factory=dict)  #: where the value ends, and the value


def with_tokens(program: str, arguments: list[str]) -> list[str]:
    """Return the arguments with the token ids of the text in its place, or as they are if the program will refuse them."""
    command = next((each for each in arguments if not each.startswith("-")), "")
    known = _options_with_values(program, command)
    parsed = _parsed(arguments, known)
    for option, (replacement, excluded) in _TEXT.items():
        model = parsed.options["--input"][1] if "--input" in parsed.options else next(iter(parsed.positionals[1:]), "")
        refused = not model or any(each in parsed.options for each in (replacement, *excluded))
        if option not in known or option not in parsed.options or refused:
            continue
        last, text = parsed.options[option]
        first = last if arguments[last].startswith(option + "=") else last - 1
        return [*arguments[:first], replacement, _file_of(_ids(model, text), text), *arguments[last + 1 :]]
    return arguments


def _options_with_values(program: str, command: str) -> set[str]:
    """Return the options of a command that take a value, as its help shows them."""
    shown = subprocess.run([program, command, "--help"], capture_output=True, text=True).stdout
    return {option for options, value in _IN_HELP.findall(shown) if value for option in options.split(",")}


def _parsed(arguments: list[str], with_values: set[str]) -> _Parsed:
    parsed = _Parsed()
    numbered = iter(enumerate(arguments))
    for index, argument in numbered:
        name, equals, value = argument.partition("=")
        if argument == "--":
            parsed.positionals += arguments[index + 1 :]
            break
        if not argument.startswith("-"):
            parsed.positionals.append(argument)
        elif equals:
            parsed.options[name] = (index, value)
        elif name in with_values:
            last, value = next(numbered, (index, ""))
            if value:
                parsed.options[name] = (last, value)
    return parsed


def _ids(model: str, text: str) -> Array:
    try:
        ids = ids_of_text(model, text)
        if len(ids) < 2:
            raise CorruptError(f"{one_line(text)}: {len(ids)} tokens; at least 2 are needed")
        return ids
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except (BallastError, ImportError) as error:
        print(f"ballast: {error}", file=sys.stderr)
        sys.exit(_exit_code(error))


def _exit_code(error: Exception) -> int:
    if isinstance(error, CancelledError):
        return _INTERRUPTED
    if isinstance(error, WriteError):
        return _BAD_OUTPUT
    return _USAGE if isinstance(error, (ImportError, ArgumentError)) else _BAD_INPUT


def _file_of(ids: Array, text: str) -> str:
    """Return the path of an .npy file in memory. It has no name to remove, and ends with the program that inherits it."""
    descriptor = os.memfd_create(os.path.basename(text)[:100], 0)
    with open(descriptor, "wb", closefd=False) as file:
        np.save(file, ids)
    return f"/dev/fd/{descriptor}"
