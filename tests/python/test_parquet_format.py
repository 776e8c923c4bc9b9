"""Parquet V2 Extended: pyarrow and DuckDB read our files, and we read theirs."""

import json
import re
import struct
import subprocess
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "formats" / "parquet-v2-extended.md"

SCHEMA = pa.schema(
    [
        pa.field("layer_name", pa.string(), False),
        pa.field("dtype", pa.string(), False),
        pa.field("quant_type", pa.string(), False),
        pa.field("shape", pa.list_(pa.uint64()), False),
        pa.field("block", pa.uint32(), False),
        pa.field("block_count", pa.uint32(), False),
        pa.field("row_offset", pa.uint64(), False),
        pa.field("row_count", pa.uint64(), False),
        pa.field("data", pa.large_binary(), False),
        pa.field("num_params", pa.uint64(), False),
        pa.field("scales", pa.list_(pa.field("element", pa.float32(), False)), False),
        pa.field("zero_points", pa.list_(pa.field("element", pa.float32(), False)), False),
        pa.field("bit_width", pa.uint8(), False),
        pa.field("quant_axis", pa.uint64()),
        pa.field("group_size", pa.uint64()),
        pa.field("is_diffusion_model", pa.bool_(), False),
        pa.field("modality", pa.string()),
        pa.field("time_aware_quant_json", pa.string()),
        pa.field("spatial_quant_json", pa.string()),
        pa.field("activation_stats_json", pa.string()),
    ]
)
VALUES = ("data", "scales", "zero_points")
NOT_NULL = [field.name for field in SCHEMA if not field.nullable]


@pytest.fixture(scope="session")
def parquet_probe(build_dir):
    """parquet_probe(request) -> the response of tests/parquet_probe.cc, which documents the requests."""
    program = build_dir / "tests" / "parquet_probe"
    if not program.exists():
        pytest.skip("built without Arrow")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:

        def ask(**request) -> dict:
            process.stdin.write(json.dumps(request, default=str) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, f"the probe ended on: {request}"
            return json.loads(answer)

        yield ask


def bf16(values) -> np.ndarray:
    """The upper halves of float32."""
    return (np.asarray(values, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def make_row(name, data=b"", scales=(), zero_points=(), **fields) -> dict:
    row = {
        "layer_name": name, "dtype": "BF16", "quant_type": "none", "shape": [len(data)], "block": 0, "block_count": 1,
        "row_offset": 0, "row_count": len(data), "data": data, "num_params": len(data),
        "scales": np.asarray(scales, np.float32), "zero_points": np.asarray(zero_points, np.float32), "bit_width": 8,
        "quant_axis": None, "group_size": None, "is_diffusion_model": False, "modality": None,
        "time_aware_quant_json": None, "spatial_quant_json": None, "activation_stats_json": None,
    }  # fmt: skip
    return row | fields


def sample() -> list[dict]:
    rng = np.random.default_rng(7)
    rows = [
        make_row(
            "model.重み.weight", rng.bytes(60), rng.normal(size=5), [0.0, -0.0, 7.5, 1e-42, np.inf], dtype="F32",
            quant_type="int8", shape=[3, 0, 2**64 - 1], block=2**32 - 1, block_count=2**32 - 1, row_offset=2**64 - 1,
            row_count=2**63, num_params=2**64 - 1, bit_width=255, quant_axis=1, group_size=2**64 - 1,
            is_diffusion_model=True, modality="image", time_aware_quant_json="{}", spatial_quant_json="",
            activation_stats_json='{"é": [1, 2]}',
        ),
        make_row("", shape=[]),
        make_row("large", rng.bytes(2_500_000), bf16(rng.normal(size=40_000)), bf16(rng.integers(0, 16, 40_000))),
    ]  # fmt: skip
    for i in range(40):
        rows.append(make_row(f"layers.{i}", rng.bytes(i * 50), rng.normal(size=i), rng.normal(size=i), block=i))
    return rows


def request_of(row: dict) -> dict:
    floats = {key: row[key].view(np.uint32).tolist() for key in ("scales", "zero_points")}
    return row | floats | {"data": row["data"].hex()}


def write(probe, path, rows, **options):
    answer = probe(write=path, blocks=[request_of(row) for row in rows], **options)
    assert answer["ok"], answer
    return pq.ParquetFile(path)


def assert_same(found: list[dict], rows: list[dict]):
    assert len(found) == len(rows)
    for a, b in zip(found, rows, strict=True):
        assert request_of(a) == request_of(b)


def as_rows(table) -> list[dict]:
    columns = set(SCHEMA.names)
    rows = [{key: value for key, value in row.items() if key in columns} for row in table.to_pylist()]
    for row in rows:
        row["scales"] = np.asarray(row["scales"], np.float32)
        row["zero_points"] = np.asarray(row["zero_points"], np.float32)
    return rows


def chunks(file) -> dict:
    """All column chunks of a file by the name of the column."""
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    found = {}
    for group in groups:
        for i in range(group.num_columns):
            found.setdefault(group.column(i).path_in_schema.split(".")[0], []).append(group.column(i))
    return found


@pytest.fixture(scope="module")
def file(parquet_probe, tmp_path_factory):
    return write(parquet_probe, tmp_path_factory.mktemp("ours") / "a.parquet", sample())


class TestOurFiles:
    def test_schema_and_metadata(self, file):
        assert file.schema_arrow.remove_metadata() == SCHEMA
        metadata = dict(file.metadata.metadata)
        assert metadata.pop(b"ARROW:schema")
        assert metadata == {b"format": b"parquet_v2_extended", b"version": b"2"}
        assert re.fullmatch(r"ballast version \d+\.\d+\.\d+", file.metadata.created_by)

    def test_pyarrow_reads_the_values(self, file):
        assert_same(as_rows(file.read()), sample())

    @pytest.mark.parametrize("compress", [False, True])
    def test_duckdb_reads_the_values(self, parquet_probe, tmp_path, compress):
        path = tmp_path / "a.parquet"
        write(parquet_probe, path, sample(), compress=compress)
        relation = duckdb.sql(f"SELECT * FROM '{path}'")
        assert relation.columns == SCHEMA.names
        rows = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
        for row in rows:
            row["scales"] = np.asarray(row["scales"], np.float32)
            row["zero_points"] = np.asarray(row["zero_points"], np.float32)
        assert_same(rows, sample())

    def test_large_blocks_have_row_groups_of_their_own(self, parquet_probe, tmp_path, file):
        assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [2, 1, 40]
        middle = [make_row("m", bytes(900_000)) for _ in range(20)]
        groups = write(parquet_probe, tmp_path / "b.parquet", middle).metadata
        assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [18, 2]

    @pytest.mark.parametrize("compress", [False, True])
    def test_encodings(self, parquet_probe, tmp_path, compress):
        columns = chunks(write(parquet_probe, tmp_path / "a.parquet", sample(), compress=compress))
        for chunk in columns["scales"] + columns["zero_points"]:
            assert set(chunk.encodings) == {"RLE", "BYTE_STREAM_SPLIT"} and chunk.compression == "ZSTD"
            assert not chunk.has_dictionary_page and not chunk.is_stats_set
        for chunk in columns["data"]:
            assert set(chunk.encodings) <= {"RLE", "PLAIN"} and chunk.compression == ("ZSTD" if compress else "UNCOMPRESSED")
            assert not chunk.has_dictionary_page and not chunk.is_stats_set
        for name in ("layer_name", "dtype", "quant_type", "modality", "activation_stats_json"):
            assert all("RLE_DICTIONARY" in chunk.encodings for chunk in columns[name])
        assert columns["layer_name"][2].statistics.min == "layers.0"
        for name in ("shape", "time_aware_quant_json"):
            assert not any(chunk.is_stats_set for chunk in columns[name])

    def test_parameters_cost_sixteen_bits(self, parquet_probe, tmp_path):
        count = 500_000
        scales = bf16(np.random.default_rng(1).uniform(1e-6, 1.0, count) ** 3)
        columns = chunks(write(parquet_probe, tmp_path / "a.parquet", [make_row("w", bytes(count), scales, scales)]))
        for name in ("scales", "zero_points"):
            (chunk,) = columns[name]
            assert chunk.total_uncompressed_size > 4 * count
            assert chunk.total_compressed_size * 8 / count < 16.2

    def test_same_input_gives_the_same_bytes(self, parquet_probe, tmp_path):
        for name in ("a", "b"):
            write(parquet_probe, tmp_path / name, sample())
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

    @pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
    def test_the_code_in_the_docs_dequantizes(self, parquet_probe, tmp_path, bits):
        rng = np.random.default_rng(bits)
        rows, columns, group = 7, 45, 16
        codes = rng.integers(0, 2**bits, (rows, columns), np.uint8)
        scales, zeros = bf16(rng.normal(size=(rows, 3))), bf16(rng.uniform(0, 2**bits, (rows, 3)))
        stream = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little").reshape(rows, -1)
        packed = np.packbits(stream, axis=1, bitorder="little")
        restore = 2.0 ** rng.integers(-3, 3, columns).astype(np.float32)
        blocks = [
            make_row(
                "conv", packed[a:b].tobytes(), scales[a:b].ravel(), zeros[a:b].ravel(), quant_type=f"int{bits}",
                shape=[rows, 9, 5], block=i, block_count=2, row_offset=a, row_count=b - a, bit_width=bits,
                num_params=(b - a) * columns, quant_axis=1, group_size=group,
                spatial_quant_json=json.dumps({"equalization_scales": restore.tolist()}),
            )
            for i, (a, b) in enumerate([(0, 4), (4, 7)])
        ]  # fmt: skip
        plain = rng.normal(size=(2, 3)).astype(np.float32)
        raw = make_row("norm", plain.tobytes(), dtype="F32", shape=[2, 3], row_count=2, num_params=6, bit_width=32)
        write(parquet_probe, tmp_path / "model-00001-of-00001.parquet", [*blocks, raw])

        (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
        names = {"folder": tmp_path}
        exec(code, names)  # noqa: S102
        each = [np.repeat(values, group, axis=1)[:, :columns] for values in (scales, zeros)]
        wanted = (codes.astype(np.float32) - each[1]) * each[0] * restore
        assert names["tensors"]["conv"].dtype == np.float32
        assert np.array_equal(names["tensors"]["conv"], wanted.reshape(rows, 9, 5))
        assert np.array_equal(names["tensors"]["norm"].view(np.float32).reshape(2, 3), plain)


def to_table(rows, schema=SCHEMA):
    return pa.Table.from_pylist([row | {k: row[k].tolist() for k in ("scales", "zero_points")} for row in rows], schema)


def read(probe, path) -> list[dict]:
    answer = probe(read=path)
    assert answer["ok"], answer
    rows = answer["blocks"]
    for row in rows:
        row["data"] = bytes.fromhex(row["data"])
        for key in ("scales", "zero_points"):
            row[key] = np.array(row[key], np.uint32).view(np.float32)
    return rows


class TestTheirFiles:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"row_group_size": 1},
            {"row_group_size": 7, "compression": "NONE", "use_dictionary": False},
            {"compression": "GZIP"},
            {"compression": "BROTLI", "store_schema": False},
            {"compression": "LZ4", "data_page_version": "2.0"},
            {"compression": "ZSTD", "data_page_size": 100, "write_batch_size": 1, "write_page_index": True},
            {"use_dictionary": False, "column_encoding": {"data": "DELTA_LENGTH_BYTE_ARRAY", "layer_name": "DELTA_BYTE_ARRAY"}},
            {"use_dictionary": False, "use_byte_stream_split": ["scales.list.element", "zero_points.list.element"]},
            {"use_compliant_nested_type": False, "write_page_checksum": True},
        ],
        ids=str,
    )
    def test_pyarrow(self, parquet_probe, tmp_path, options):
        pq.write_table(to_table(sample()), tmp_path / "a.parquet", **options)
        assert_same(read(parquet_probe, tmp_path / "a.parquet"), sample())

    def test_nullable_columns_in_another_order_among_others(self, parquet_probe, tmp_path):
        schema = pa.schema([pa.field(f.name, f.type) for f in reversed(SCHEMA)])
        table = to_table(sample(), schema)
        table = table.add_column(3, "note", [[{"a": [i]} for i in range(len(table))]])
        pq.write_table(table, tmp_path / "a.parquet")
        assert_same(read(parquet_probe, tmp_path / "a.parquet"), sample())

    def test_large_types(self, parquet_probe, tmp_path):
        large = {pa.string(): pa.large_string(), pa.list_(pa.uint64()): pa.large_list(pa.uint64())}
        schema = pa.schema([pa.field(f.name, large.get(f.type, f.type), f.nullable) for f in SCHEMA])
        pq.write_table(to_table(sample(), schema), tmp_path / "a.parquet", store_schema=False)
        assert_same(read(parquet_probe, tmp_path / "a.parquet"), sample())

    def test_row_group_too_large_to_cache(self, parquet_probe, tmp_path):
        rng = np.random.default_rng(3)
        rows = [make_row(f"w.{i}", rng.bytes(9_000_000), rng.normal(size=i), rng.normal(size=9)) for i in range(4)]
        pq.write_table(to_table(rows), tmp_path / "a.parquet", compression="NONE", use_dictionary=False)
        assert_same(read(parquet_probe, tmp_path / "a.parquet"), rows)

    def test_duckdb(self, parquet_probe, tmp_path):
        write(parquet_probe, tmp_path / "a.parquet", sample())
        duckdb.sql(f"COPY (SELECT * FROM '{tmp_path}/a.parquet') TO '{tmp_path}/b.parquet' (FORMAT parquet)")
        assert_same(read(parquet_probe, tmp_path / "b.parquet"), sample())


def refusal(probe, path):
    answer = probe(read=path)
    assert not answer["ok"]
    assert "\n" not in answer["message"]
    return answer["code"], answer["message"]


def varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head, number = head + bytes([number & 127 | 128]), number >> 7
    return head + bytes([number])


class TestRefusals:
    @pytest.fixture
    def refuse(self, parquet_probe, tmp_path):
        def refuse(table, **options):
            pq.write_table(table, tmp_path / "a.parquet", **options)
            return refusal(parquet_probe, tmp_path / "a.parquet")

        return refuse

    @pytest.mark.parametrize("column", SCHEMA.names)
    def test_missing_column(self, refuse, column):
        assert refuse(to_table(sample()[:2]).drop([column])) == ("corrupt", f"column '{column}' is missing")

    @pytest.mark.parametrize("column", NOT_NULL)
    def test_null(self, refuse, column):
        rows = sample()
        table = to_table(rows, pa.schema([pa.field(f.name, f.type) for f in SCHEMA]))
        values = table[column].to_pylist()
        values[5] = None
        index = SCHEMA.names.index(column)
        table = table.set_column(index, column, pa.array(values, SCHEMA.field(column).type))
        place = "block 4294967295 of 'model.重み.weight': " if column in VALUES else ""
        assert refuse(table) == ("corrupt", f"{place}row group 0: column '{column}': row 5 is null")

    @pytest.mark.parametrize(("column", "kind"), [("shape", pa.uint64()), ("scales", pa.float32()), ("zero_points", pa.float32())])
    def test_null_item(self, refuse, column, kind):
        table = to_table([make_row("x", num_params=64)] * 2, pa.schema([pa.field(f.name, f.type) for f in SCHEMA]))
        table = table.set_column(SCHEMA.names.index(column), column, [pa.array([[], [1, None]], pa.list_(kind))])
        place = "block 0 of 'x': " if column in VALUES else ""
        assert refuse(table) == ("corrupt", f"{place}row group 0: column '{column}': row 1 has a null item")

    @pytest.mark.parametrize(
        ("column", "values", "message"),
        [
            ("block", pa.array([1], pa.int64()), "INT64, expected uint32"),
            ("block", pa.array([1], pa.int32()), "INT32, expected uint32"),
            ("block", pa.array([1], pa.uint8()), "INT32 Int(bitWidth=8, isSigned=false), expected uint32"),
            ("bit_width", pa.array([1], pa.uint32()), "INT32 Int(bitWidth=32, isSigned=false), expected uint8"),
            ("num_params", pa.array([1.0], pa.float64()), "DOUBLE, expected uint64"),
            ("layer_name", pa.array([b"x"], pa.binary()), "BYTE_ARRAY, expected string"),
            ("data", pa.array(["x"], pa.string()), "BYTE_ARRAY String, expected binary"),
            ("data", pa.array([[1]], pa.list_(pa.uint8())), "a group that contains INT32 Int(bitWidth=8, isSigned=false), expected binary"),
            ("is_diffusion_model", pa.array([1], pa.uint8()), "INT32 Int(bitWidth=8, isSigned=false), expected bool"),
            ("scales", pa.array([[1.0]], pa.list_(pa.float64())), "a group that contains DOUBLE, expected list<float>"),
            ("scales", pa.array([1.0], pa.float32()), "FLOAT, expected list<float>"),
            ("scales", pa.array([[[1.0]]], pa.list_(pa.list_(pa.float32()))), "a group that contains FLOAT, expected list<float>"),
            ("scales", pa.array([[{"x": 1.0}]], pa.list_(pa.struct({"x": pa.float32()}))), "a group that contains FLOAT, expected list<float>"),
            ("shape", pa.array([{"x": 1}], pa.struct({"x": pa.uint64()})), "a group that contains INT64 Int(bitWidth=64, isSigned=false), expected list<uint64>"),
        ],
    )  # fmt: skip
    def test_wrong_type(self, refuse, column, values, message):
        table = to_table(sample()[1:2]).set_column(SCHEMA.names.index(column), column, values)
        assert refuse(table) == ("corrupt", f"column '{column}' is {message}")

    def test_two_columns_of_one_name(self, refuse):
        table = to_table(sample()[:1])
        message = "column 'block': there are several columns of this name, or it is nested"
        assert refuse(table.append_column("block", table["block"])) == ("corrupt", message)
        parts = pa.array([{"a": 1, "b": 2}])
        assert refuse(table.set_column(4, "block", parts)) == ("corrupt", message)

    def test_invalid_utf8(self, refuse):
        text = pa.array([b"a\xff"], pa.binary()).view(pa.string())
        table = to_table(sample()[:1]).set_column(0, "layer_name", text)
        assert refuse(table) == ("corrupt", "row group 0: column 'layer_name': row 0: invalid UTF-8")

    def test_number_out_of_range(self, parquet_probe, tmp_path):
        options = {"use_dictionary": False, "compression": "NONE", "write_statistics": False}
        pq.write_table(to_table([make_row("x", bit_width=77)]), tmp_path / "a.parquet", **options)
        content = (tmp_path / "a.parquet").read_bytes()
        assert content.count(struct.pack("<i", 77)) == 1
        for number in (300, -1):
            (tmp_path / "a.parquet").write_bytes(content.replace(struct.pack("<i", 77), struct.pack("<i", number)))
            message = f"row group 0: column 'bit_width': row 0: {number} is not a uint8"
            assert refusal(parquet_probe, tmp_path / "a.parquet") == ("corrupt", message)

    def test_length_past_the_page(self, parquet_probe, tmp_path):
        options = {"use_dictionary": False, "compression": "NONE", "write_statistics": False}
        pq.write_table(to_table([make_row("x", b"the data")]), tmp_path / "a.parquet", **options)
        content = (tmp_path / "a.parquet").read_bytes()
        for length in (9, 2**31 - 1, 2**31, 2**32 - 1):
            (tmp_path / "a.parquet").write_bytes(content.replace(b"\x08\0\0\0the data", struct.pack("<I", length) + b"the data"))
            code, message = refusal(parquet_probe, tmp_path / "a.parquet")
            assert code == "corrupt" and message.startswith("block 0 of 'x': row group 0: ")

    def test_unknown_codec(self, parquet_probe, tmp_path):
        pq.write_table(to_table(sample()[:1]), tmp_path / "a.parquet", compression="ZSTD", write_statistics=False)
        content = (tmp_path / "a.parquet").read_bytes()
        # The path of the column, then field 4 of its metadata, the codec: an i32 of 6, made 3.
        place = content.rindex(b"\x04data\x15\x0c") + 6
        (tmp_path / "a.parquet").write_bytes(content[:place] + b"\x06" + content[place + 1 :])
        message = "column 'data' of row group 0 is compressed with LZO, which this version of Arrow cannot read"
        assert refusal(parquet_probe, tmp_path / "a.parquet") == ("unsupported", message.replace("LZO", "lzo"))

    @pytest.mark.parametrize("plaintext_footer", [False, True])
    def test_encrypted(self, parquet_probe, tmp_path, plaintext_footer):
        class Client(encryption.KmsClient):
            def wrap_key(self, key_bytes, _):
                return key_bytes.hex()

            def unwrap_key(self, wrapped_key, _):
                return bytes.fromhex(wrapped_key)

        factory = encryption.CryptoFactory(lambda _: Client())
        configuration = encryption.EncryptionConfiguration(
            footer_key="k", column_keys={"k": ["data"]}, plaintext_footer=plaintext_footer
        )
        properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), configuration)
        pq.write_table(to_table(sample()), tmp_path / "a.parquet", encryption_properties=properties)
        assert refusal(parquet_probe, tmp_path / "a.parquet") == ("unsupported", "the file is encrypted")

    def test_too_many_rows(self, refuse):
        code, message = refuse(pa.concat_tables([to_table([make_row("x")])] * 400_000).combine_chunks())
        assert code == "unsupported" and re.fullmatch(r"file has 400000 rows, at most \d{6} are supported", message)

    def test_repeated_text_is_limited(self, refuse):
        rows = [make_row("x", activation_stats_json="j" * 1_000_000)] * 150
        message = "row group 0: column 'activation_stats_json': row 99: exceeds the memory limit"
        assert refuse(to_table(rows)) == ("unsupported", message)

    def test_repeated_shapes_are_limited(self, refuse):
        table = to_table([make_row("x")] * 2)
        shape = pa.LargeListArray.from_arrays([0, 0, 13_000_000], pa.array(np.zeros(13_000_000, np.uint64)))
        code, message = refuse(table.set_column(3, "shape", shape))
        assert (code, message) == ("unsupported", "row group 0: column 'shape': exceeds the memory limit")

    def test_repeated_values_are_limited(self, refuse):
        rows = [make_row("x", num_params=64, scales=np.zeros(3_000_000))]
        message = "block 0 of 'x': row group 0: column 'scales': row 0 has more than 64 items for as many parameters"
        assert refuse(to_table(rows)) == ("corrupt", message)
        message = "block 0 of 'x': row group 0: column 'data': row 0 has 1000000 bytes for 64 parameters"
        assert refuse(to_table([make_row("x", bytes(1_000_000), num_params=64)])) == ("corrupt", message)

    @pytest.mark.parametrize(
        "schema",
        [
            pytest.param(b"\xfc" + varint(60_001) + b"\x35\x00\x18\x01g\x15\x02\x00" * 60_000 + b"\x15\x02\x25\x00\x18\x01l\x00", id="depth"),
            pytest.param(b"\xfc" + varint(2**31 - 1), id="list"),
            pytest.param(b"\x1c\x48" + varint(2**31 - 1), id="string"),
            pytest.param(b"\x1c" + b"\xec" * 60_000, id="structs"),
        ],
    )  # fmt: skip
    def test_thrift_bombs(self, parquet_probe, tmp_path, schema):
        footer = b"\x15\x04\x19" + schema + b"\x16\x00\x19\x0c\x00"
        (tmp_path / "a.parquet").write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")
        assert refusal(parquet_probe, tmp_path / "a.parquet")[0] == "corrupt"
