"""Ballast compared with the reference safetensors package: same verdict and same content for every file."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import safetensors
from safetensors import SafetensorError, safe_open
from safetensors_bytes import data_start, prefix

from safetensors_mutants import mutant

SEED = 1
FULL = os.environ.get("BALLAST_FULL") == "1"
FILES = 25_000 if FULL else 3_000


class Pairs(list):
    """A JSON object with its keys in order, including duplicates."""


@dataclass(frozen=True)
class StrictException:
    """A kind of file that the reference accepts and strict mode refuses."""

    reason: str
    message: str  # part of the error
    holds: Callable[[Pairs], bool]


def repeats(keys: list[str]) -> bool:
    return len(set(keys)) < len(keys)


def tensor_entries(header: Pairs) -> list:
    return [entry for name, entry in header if name != "__metadata__"]


def repeats_metadata(header: Pairs) -> bool:
    return any(repeats([key for key, _ in value or []]) for name, value in header if name == "__metadata__")


def has_dtype_object(header: Pairs) -> bool:
    objects = [entry for entry in tensor_entries(header) if isinstance(entry, Pairs)]
    return any(key == "dtype" and isinstance(value, Pairs) for entry in objects for key, value in entry)


STRICT_EXCEPTIONS = [
    StrictException(
        reason="duplicate tensor name: readers differ on which tensor they use",
        message="duplicate tensor ",
        holds=lambda header: repeats([name for name, _ in header if name != "__metadata__"]),
    ),
    StrictException(
        reason="duplicate metadata key: readers differ on which value they use",
        message="duplicate metadata key ",
        holds=repeats_metadata,
    ),
    StrictException(
        reason="a tensor as an array of its fields: an accident of the reference's parser, not in the format",
        message="expected '{' at byte ",
        holds=lambda header: any(not isinstance(entry, Pairs) for entry in tensor_entries(header)),
    ),
    StrictException(
        reason="a dtype as an object: an accident of the reference's parser, not in the format",
        message="expected '\"' at byte ",
        holds=has_dtype_object,
    ),
]


def read_by_reference(path: Path) -> dict:
    """Open a file with the reference and return the result in the form of a probe response."""
    try:
        tensors = safetensors.deserialize(path.read_bytes())
    except SafetensorError as error:
        return {"ok": False, "message": str(error)}
    with safe_open(path, "np") as file:
        metadata = file.metadata() or {}
    return {
        "ok": True,
        "metadata": metadata,
        "tensors": sorted([name, t["dtype"], t["shape"], t["data"].hex()] for name, t in tensors),
    }


def applicable_exceptions(path: Path) -> list[StrictException]:
    content = path.read_bytes()
    text = content[8 : data_start(content)].decode()
    header = json.loads(text, object_pairs_hook=Pairs, parse_int=str)
    return [exception for exception in STRICT_EXCEPTIONS if exception.holds(header)]


def compare(probe, path: Path) -> tuple[dict, StrictException | None]:
    """Check both modes on a file. Return the result of the reference and the exception of strict mode, if any."""
    expected = read_by_reference(path)
    as_reference, strict = probe(f"open reference {path}"), probe(f"open strict {path}")
    for answer in (as_reference, strict):
        if answer["ok"]:
            answer["tensors"].sort()
        else:
            assert answer["code"] in ("corrupt", "unsupported"), answer
            assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e]", answer["message"]), answer
    assert as_reference["ok"] == expected["ok"], (expected, as_reference)
    if not expected["ok"]:
        assert not strict["ok"], (expected, strict)
        return expected, None
    assert as_reference == expected
    exceptions = applicable_exceptions(path)
    if strict["ok"]:
        assert strict == expected
        assert not exceptions, "accepted in spite of an exception"
        return expected, None
    explanations = [exception for exception in exceptions if exception.message in strict["message"]]
    assert len(explanations) == 1, f"not refused for exactly one listed reason: {strict}"
    return expected, explanations[0]


def kind_of(message: str) -> str:
    """The message of the reference without the details of one file."""
    message = message.removeprefix("Error while deserializing: ")
    return re.split(r" for tensor| at line| ?[`,\"]|: in(?:valid|complete) utf-8", message)[0]


def test_verdicts_and_contents_match_the_reference(probe, tmp_path, capsys):
    path = tmp_path / "mutant.safetensors"
    verdicts, exceptions = Counter(), Counter()
    for index in range(FILES):
        file = mutant(SEED, index)
        path.unlink(missing_ok=True)  # faster than truncating it, which makes ext4 flush it each time
        path.write_bytes(file.content)
        try:
            expected, exception = compare(probe, path)
        except AssertionError as error:
            error.add_note(f"mutant({SEED}, {index}), {file.label}: {file.content[:4000]!r}")
            raise
        verdicts["accepted" if expected["ok"] else kind_of(expected["message"])] += 1
        if exception:
            exceptions[exception.reason] += 1
    rejected = FILES - verdicts["accepted"]
    with capsys.disabled():
        print(f"\n{FILES} files: {verdicts['accepted']} accepted, {rejected} rejected in {len(verdicts) - 1} ways;")
        print(f"strict reading refuses {exceptions.total()} more")
    for counter in (verdicts, exceptions):
        for label, count in counter.most_common():
            print(f"{count:7} {label}")
    assert verdicts["accepted"] >= 0.3 * FILES
    assert len(verdicts) > 30
    assert exceptions.keys() == {exception.reason for exception in STRICT_EXCEPTIONS}


def file_of(header: str, data: bytes = b"") -> bytes:
    return prefix(header) + data


def one_tensor(dtype: str = '"U8"', shape: str = "[1]", offsets: str = "[0,1]", more: str = "") -> bytes:
    return file_of(f'{{"a":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}{more}}}}}', b"x")


def empty_tensor(shape: str) -> bytes:
    return file_of(f'{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,0]}}}}')


@pytest.mark.parametrize(
    ("content", "accepted"),
    [
        pytest.param(empty_tensor("[0,9223372036854775808,4]"), True, id="dimension of 2^63 after one of 0"),
        pytest.param(empty_tensor("[9223372036854775808,4,0]"), False, id="overflow before a dimension of 0"),
        pytest.param(empty_tensor("[18446744073709551615,0]"), True, id="dimension of 2^64 - 1 before one of 0"),
        pytest.param(empty_tensor("[-0]"), False, id="minus zero"),
        pytest.param(one_tensor(shape="[1.0]"), False, id="whole number as a fraction"),
        pytest.param(one_tensor(dtype='{"U8":null}'), True, id="dtype as an object"),
        pytest.param(one_tensor(dtype='{"U8":{}}'), False, id="dtype as an object of an object"),
        pytest.param(one_tensor(more=',"x":' + "[" * 125 + "]" * 125), True, id="ignored value 125 deep"),
        pytest.param(one_tensor(more=',"x":' + "[" * 126 + "]" * 126), False, id="ignored value 126 deep"),
        pytest.param(one_tensor(more=',"x":' + "9" * 308), True, id="ignored integer of 308 digits"),
        pytest.param(one_tensor(more=',"x":' + "9" * 310), False, id="ignored integer of 310 digits"),
        pytest.param(one_tensor(more=',"x":17976931348623157e292'), True, id="ignored largest double"),
        pytest.param(one_tensor(more=',"x":1e309'), False, id="ignored number past the largest double"),
        pytest.param(one_tensor(more=',"x":0e999999999999'), True, id="ignored zero with a huge exponent"),
        pytest.param(one_tensor(more=',"\\ud83d\\ude00":0'), True, id="surrogate pair"),
        pytest.param(one_tensor(more=',"\\ud83d\\ue000":0'), False, id="half a surrogate pair"),
    ],
)
def test_edge_case_is_read_like_the_reference(probe, tmp_path, content, accepted):
    path = tmp_path / "corner.safetensors"
    path.write_bytes(content)
    assert compare(probe, path)[0]["ok"] == accepted


@pytest.mark.parametrize(("size", "accepted"), [(10**8, True), (10**8 + 1, False)])
def test_header_limit_is_that_of_the_reference(probe, tmp_path, size, accepted):
    path = tmp_path / "long.safetensors"
    path.write_bytes(file_of("{}".ljust(size)))
    assert compare(probe, path)[0]["ok"] == accepted
    path.unlink()
