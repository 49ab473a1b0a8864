"""Files that are no text, told by the bytes with which their formats begin."""

from __future__ import annotations

UNPACK = "; unpack it and give the folder"
SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (257, b"ustar", f"a tar archive{UNPACK}"),
    (0, b"PK\x03\x04", f"a zip archive (or an office document, an e-book …){UNPACK}, or save it as plain text"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", f"a 7z archive{UNPACK}"),
    (0, b"Rar!\x1a\x07", f"a rar archive{UNPACK}"),
    (0, b"\xfd7zXZ\x00", "packed with xz; unpack it, or pack it with gzip"),
    (0, b"BZh", "packed with bzip2; unpack it, or pack it with gzip"),
    (0, b"\x28\xb5\x2f\xfd", "packed with zstd; unpack it, or pack it with gzip"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF87a", "a GIF image"),
    (0, b"GIF89a", "a GIF image"),
    (8, b"WEBP", "a WebP image"),
    (0, b"II*\x00", "a TIFF image"),
    (0, b"MM\x00*", "a TIFF image"),
    (0, b"%PDF-", "a PDF document; save it as plain text"),
    (0, b"{\\rtf", "an RTF document; save it as plain text"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an office document; save it as plain text"),
    (0, b"\x7fELF", "a program"),
    (0, b"SQLite format 3\x00", "a SQLite database"),
    (0, b"PAR1", "a Parquet file; write its texts to a plain one"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"OggS", "an Ogg recording"),
    (0, b"ID3", "an MP3 recording"),
    (8, b"WAVE", "a WAV recording"),
    (4, b"ftyp", "a video or a recording"),
)
"""Where the bytes stand that tell a format, the bytes, and what the file is."""
PRINTABLE = (b"BZh", b"ID3", b"PAR1", b"OggS", b"WEBP", b"WAVE", b"ftyp", b"GIF87a", b"GIF89a")
"""Signatures that a text might have by chance: only a file with NUL or other control bytes is taken at their word."""
CONTROL = bytes(range(9)) + bytes(range(14, 27))


def find_binary_kind(head: bytes) -> str | None:
    """What a file is, by its first bytes, where it is of a known format that is no text."""
    for place, signature, kind in SIGNATURES:
        if head[place : place + len(signature)] != signature:
            continue
        if signature not in PRINTABLE or any(byte in head[:512] for byte in CONTROL):
            return kind
    return None
