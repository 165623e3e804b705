"""A kill or a disk error costs a file only the lines that it hits."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from agentgym.training.rollout.lines import encode_lines, read_chunk, read_chunks, torn_at
from agentgym.training.rollout.storage import append_bytes, cut_torn_line, whole_lines

LINES = [f"{number} ".encode() * (40 * number) + b"\n" for number in range(1, 6)]
NAMES = ["t.jsonl", "t.jsonl.zst"]


def written(path: Path) -> list[bytes]:
    path.write_bytes(encode_lines(path, LINES))
    return [line for _, line in whole_lines(path)]


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_read_as_they_were_written_and_found_one_by_one(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    assert written(path) == LINES
    chunks = list(read_chunks(path))
    assert [read_chunk(path, chunk.start, chunk.end) for chunk in chunks] == chunks
    assert [chunk.lines for chunk in read_chunks(path, chunks[2].start)] == [
        (line,) for line in LINES[2:]
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_was_cut_anywhere_is_read_and_goes_on(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    written(path)
    whole = path.read_bytes()
    ends = [0, *(chunk.end for chunk in read_chunks(path))]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends) - 1
        assert torn_at(path) == ends[kept]
        cut_torn_line(path)
        append_bytes(path, encode_lines(path, [b"new\n"]))
        assert [line for _, line in whole_lines(path)] == [*LINES[:kept], b"new\n"]


@pytest.mark.parametrize("size", [1, 3])
def test_a_damaged_byte_costs_its_frame_alone(tmp_path: Path, size: int) -> None:
    path = tmp_path / "t.jsonl.zst"
    written(path)
    whole = path.read_bytes()
    chunks = list(read_chunks(path))
    for place in range(len(whole)):
        hit = bytes(byte ^ 0x55 for byte in whole[place : place + size])
        path.write_bytes(whole[:place] + hit + whole[place + size :])
        lines = [line for _, line in whole_lines(path)]
        touched = [c for c in chunks if c.start < place + size and place < c.end]
        # A frame without a marked last block costs at most the next frame too.
        lost = {
            index for chunk in touched for index in (chunks.index(chunk), chunks.index(chunk) + 1)
        }
        assert [line for k, line in enumerate(LINES) if k not in lost] == [
            line for line in lines if line in LINES and LINES.index(line) not in lost
        ]


def test_a_file_that_zstd_has_made_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.zst"
    path.write_bytes(zstandard.compress(b"".join(LINES)))
    assert [line for _, line in whole_lines(path)] == LINES
    append_bytes(path, encode_lines(path, LINES))
    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        assert reader.read() == b"".join(LINES * 2)


def test_what_is_no_frame_is_a_line_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.zst"
    path.write_bytes(b'{"plain": 1}\n' + encode_lines(path, LINES))
    assert [line for _, line in whole_lines(path)] == [b'{"plain": 1}\n', *LINES]
