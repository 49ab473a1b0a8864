"""The numbers of tokens as they go over the network."""

from __future__ import annotations

import hashlib
import secrets

HALF = 26
"""Bits of each half of a number: JSON's numbers are exact below 2^53."""
ROUNDS = 4
_KEY = secrets.token_bytes(32)
"""Of this process: a run that is loaded again tells the same numbers."""


class HiddenNumbers:
    """Tokens of a file keep their numbers; those of words that clients have brought are told in a secret order.

    They are numbered as they are met, so whoever could count on could ask for the words of others. The order is a
    permutation of the numbers below 2^52 by a Feistel network with a key of this process (Luby and Rackoff 1988): the
    same word has the same number as long as it is remembered, and with a million words remembered, one guess in four
    billion is one of them.
    """

    def __init__(self, known: int) -> None:
        self.known = known  # the tokens of the file

    def tell(self, token: int) -> int:
        """The number of a token for clients."""
        if token < self.known:
            return token
        left, right = divmod(token - self.known, 1 << HALF)
        for turn in range(ROUNDS):
            left, right = right, left ^ self._mix(turn, right)
        return self.known + (left << HALF) + right

    def take(self, number: int) -> int:
        """The token that clients know by this number."""
        if not self.known <= number < self.known + (1 << 2 * HALF):
            return number
        left, right = divmod(number - self.known, 1 << HALF)
        for turn in reversed(range(ROUNDS)):
            left, right = right ^ self._mix(turn, left), left
        return self.known + (left << HALF) + right

    def _mix(self, turn: int, half: int) -> int:
        digest = hashlib.blake2b(bytes((turn, *half.to_bytes(4, "big"))), key=_KEY, digest_size=4).digest()
        return int.from_bytes(digest, "big") % (1 << HALF)
