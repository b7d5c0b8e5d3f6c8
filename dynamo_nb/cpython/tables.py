"""The two byte tables beside the code: source positions and exception ranges (same form since 3.11).

Comes in: positions and sizes, or ranges in 2-byte code units. Goes out: `co_linetable` and
`co_exceptiontable`, byte for byte as CPython's compiler writes them. Called by `assemble` only; source
positions are read back with `code.co_positions()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dynamo_nb.cpython.instruction import Positions

_SPAN = 8  # one entry covers at most this many code units
_NO_COLUMNS, _LONG, _NO_LOCATION, _ONE_LINE = 13, 14, 15, 10


def encode_linetable(spans: Iterable[tuple[Positions | None, int]], firstlineno: int) -> bytes:
    """spans: (positions, size in code units) per instruction, in order."""
    out = bytearray()
    line = firstlineno
    for positions, size in spans:
        while size > 0:
            part = min(size, _SPAN)
            line = _append_location(out, positions, part, line)
            size -= part
    return bytes(out)


def _append_location(out: bytearray, positions: Positions | None, size: int, line: int) -> int:
    """Write one entry; returns the line that the next entry's difference counts from."""
    start = None if positions is None else positions[0]
    if positions is None or start is None:
        out.append(0x80 | _NO_LOCATION << 3 | size - 1)
        return line
    _, last, column, end_column = positions
    delta = start - line
    end = start if last is None else max(last, start)
    if column is None or end_column is None:
        if end == start:
            out.append(0x80 | _NO_COLUMNS << 3 | size - 1)
            _append_signed(out, delta)
            return start
        column = end_column = -1
    elif end == start:
        if delta == 0 and column < 80 and 0 <= end_column - column < 16:
            out += bytes((0x80 | (column >> 3) << 3 | size - 1, (column & 7) << 4 | end_column - column))
            return start
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            out += bytes((0x80 | (_ONE_LINE + delta) << 3 | size - 1, column, end_column))
            return start
    out.append(0x80 | _LONG << 3 | size - 1)
    _append_signed(out, delta)
    for value in (end - start, column + 1, end_column + 1):
        _append_unsigned(out, value)
    return start


def _append_unsigned(out: bytearray, value: int) -> None:
    """Six bits a byte, lowest first, bit 6 set where more follow."""
    while value > 63:
        out.append(0x40 | value & 63)
        value >>= 6
    out.append(value)


def _append_signed(out: bytearray, value: int) -> None:
    _append_unsigned(out, -value << 1 | 1 if value < 0 else value << 1)


def encode_exceptiontable(rows: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """rows: (start, end (exclusive), target, depth, lasti), units, disjoint and ascending."""
    out = bytearray()
    for start, end, target, depth, lasti in rows:
        first = len(out)
        for value in (start, end - start, target, depth << 1 | lasti):
            _append_big_endian(out, value)
        out[first] |= 0x80
    return bytes(out)


def _append_big_endian(out: bytearray, value: int) -> None:
    """Six bits a byte, highest first, bit 6 set where more follow."""
    shift = max(0, (value.bit_length() - 1) // 6 * 6)
    while shift:
        out.append(0x40 | value >> shift & 63)
        shift -= 6
    out.append(value & 63)


def decode_exceptiontable(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """The rows that `encode_exceptiontable` takes."""
    stream = iter(table)
    for first in stream:
        numbers = []
        byte = first & 0x7F
        while True:
            value = byte & 63
            while byte & 0x40:
                byte = next(stream)
                value = value << 6 | byte & 63
            numbers.append(value)
            if len(numbers) == 4:
                break
            byte = next(stream)
        start, size, target, depth_lasti = numbers
        yield start, start + size, target, depth_lasti >> 1, bool(depth_lasti & 1)
