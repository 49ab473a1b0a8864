"""GPT-2's alphabet: one printable character for each of the 256 bytes, so that any text is a string of letters.

Radford et al. 2019, section 2.2. Bytes that print as themselves in Latin-1 keep their character; the others take the
characters from U+0100 on.
"""

from __future__ import annotations

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_REST = [byte for byte in range(256) if byte not in _PRINTABLE]

BYTE_OF: dict[str, int] = {
    **{chr(byte): byte for byte in _PRINTABLE},
    **{chr(0x100 + place): byte for place, byte in enumerate(_REST)},
}
CHARACTER_OF: list[str] = sorted(BYTE_OF, key=BYTE_OF.__getitem__)
"""The character of byte b at place b."""
BYTE_PIECES: dict[str, bytes] = {f"<0x{byte:02X}>": bytes((byte,)) for byte in range(256)}
"""How SentencePiece spells the bytes of characters that a vocabulary does not have."""
