"""Words written on pictures, in capital letters of 3 × 5 dots: the same on every machine, without a font."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROWS = {
    **{"a": "25755", "b": "65656", "c": "34443", "d": "65556", "e": "74647", "f": "74644", "g": "34553"},
    **{"h": "55755", "i": "72227", "j": "11152", "k": "55655", "l": "44447", "m": "57755", "n": "65555"},
    **{"o": "25552", "p": "65644", "q": "25563", "r": "65655", "s": "34216", "t": "72222", "u": "55557"},
    **{"v": "55552", "w": "55775", "x": "55255", "y": "55222", "z": "71247", " ": "00000"},
}
"""The five rows of each letter as octal digits, whose bits are the dots from left to right."""
OTHER = "77777"
"""A character without a shape here is a full box."""
PAPER, INK = 245, 15
"""Grey levels of the label and of its letters."""
WIDEST = 0.8
"""The most of a picture's width that a label takes."""
TALLEST = 0.22
"""The most of a picture's height that a label takes."""


def letter_dots(word: str) -> NDArray[np.bool_]:
    """The dots [5, 4 · N − 1] of a word of N letters, with one empty column between two letters."""
    columns = []
    for letter in word.lower():
        bits = [[int(row) >> shift & 1 for shift in (2, 1, 0)] for row in ROWS.get(letter, OTHER)]
        columns += [np.array(bits, np.bool_), np.zeros((5, 1), np.bool_)]
    return np.concatenate(columns[:-1], axis=1)


def write_word(pixels: NDArray[np.uint8], word: str, *, down: float = 1.0, blank: bool = False) -> NDArray[np.uint8]:
    """A copy of a picture [H, W, C] with a label that has a word on it, or of the same size without letters.

    `down` is the place of the label, from 0 at the top to 1 at the bottom. Letters are as large as fit.
    """
    if not word.strip():
        raise ValueError("the word is empty: give some letters to write on the picture")
    height, width, _ = pixels.shape
    dots = letter_dots(word.strip())
    scale = int(min(WIDEST * width / (dots.shape[1] + 2), TALLEST * height / (len(dots) + 2)))
    if scale < 1:
        raise ValueError(f"{word!r} is too long to be written on a picture of {height} × {width} pixels")
    label = np.full((scale * (len(dots) + 2), scale * (dots.shape[1] + 2)), PAPER, np.uint8)
    if not blank:
        label[scale:-scale, scale:-scale][np.kron(dots, np.ones((scale, scale), np.bool_))] = INK
    top, left = int(down * (height - len(label))), (width - label.shape[1]) // 2
    result = pixels.copy()
    result[top : top + len(label), left : left + label.shape[1]] = label[..., None]
    return result
