"""Random changes of valid files: bytes, numbers, parts removed, repeated or exchanged, values in JSON and tables."""

from __future__ import annotations

import re
from random import Random

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, 1 << 63)
VALUES = (
    *(b"1e999", b"-1e999", b"NaN", b"-1", b"0", b"1e308", b"null", b"true", b'"x"', b'""', b"[]", b"{}", b"[[]]"),
    *(b"9" * 40, b"0.5", b"[[[1]]]", b'{"":{"a":0}}', b"-0.0", b"18446744073709551616", b'"\\ud800"', b'"\\u0000"'),
    *(b'"..\\/..\\/x"', b"[" * 2000, b'{"a":' * 2000, b"\xef\xbb\xbf", b"\xff\xfe", b"\r", b"\x00", "é\u2028".encode()),
)
TOKENS = re.compile(rb"-?\d+(?:\.\d+)?|\"[^\"\n]*\"|\[[^\[\]\n]*\]|[\w-]+|[\t,\n:= ]")
"""What one value of JSON, TOML or of a table is, or what is between two."""


def change(data: bytes, others: list[bytes], random: Random) -> bytes:
    """The file with one to four changes; of text, every other time only values are changed."""
    made = bytearray(data)
    only_values = data.isascii() and random.getrandbits(1)
    for _ in range(1 + random.getrandbits(2)):
        CHANGES[-1 if only_values else random.randrange(len(CHANGES))](made, others, random)
    return bytes(made)


def _flip(made: bytearray, others: list[bytes], random: Random) -> None:
    if made:
        made[random.randrange(len(made))] ^= 1 << random.getrandbits(3)


def _set_byte(made: bytearray, others: list[bytes], random: Random) -> None:
    if made:
        made[random.randrange(len(made))] = random.getrandbits(8)


def _insert(made: bytearray, others: list[bytes], random: Random) -> None:
    at = random.randrange(len(made) + 1)
    made[at:at] = random.randbytes(1 + random.getrandbits(4))


def _remove(made: bytearray, others: list[bytes], random: Random) -> None:
    at = random.randrange(len(made) + 1)
    del made[at : at + 1 + random.getrandbits(5)]


def _repeat(made: bytearray, others: list[bytes], random: Random) -> None:
    at = random.randrange(len(made) + 1)
    made[at:at] = made[at : at + 1 + random.getrandbits(6)] * (1 + random.getrandbits(2))


def _cut(made: bytearray, others: list[bytes], random: Random) -> None:
    del made[random.randrange(len(made) + 1) :]


def _number(made: bytearray, others: list[bytes], random: Random) -> None:
    at, width = random.randrange(len(made) + 1), random.choice((1, 2, 4, 8))
    number = random.choice(NUMBERS) & ((1 << 8 * width) - 1)
    made[at : at + width] = number.to_bytes(width, "big" if random.getrandbits(1) else "little")


def _join(made: bytearray, others: list[bytes], random: Random) -> None:
    other, at = random.choice(others), random.randrange(len(made) + 1)
    made[at:] = other[min(at, len(other)) :]


def _value(made: bytearray, others: list[bytes], random: Random) -> None:
    """Another value, key or cell; or one that stands elsewhere in the file."""
    one = _find_token(made, random)
    if one is None:
        return _insert(made, others, random)
    other = None if random.getrandbits(1) else _find_token(made, random)
    made[one[0] : one[1]] = random.choice(VALUES) if other is None else made[other[0] : other[1]]
    return None


def _find_token(made: bytearray, random: Random) -> tuple[int, int] | None:
    """Where a token is: the first one after a random place, or the first of all."""
    found = TOKENS.search(made, random.randrange(len(made) + 1)) or TOKENS.search(made)
    return found.span() if found else None


CHANGES = (_flip, _set_byte, _insert, _remove, _repeat, _cut, _number, _join, _value, _value)
