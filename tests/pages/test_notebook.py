"""What can be looked at shows itself in a notebook, and shows text as text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from lmlab.analysis.alignment import Alignment
from lmlab.comparison.folder import Published
from lmlab.pages.figures import Bar, Bars, ColouredText, Dot, Heatmap, Lines, Scatter, save_png
from lmlab.tokenizers import train
from standins import TEXT, random_model

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
HOSTILE = "<script>alert('x')</script>\"&"


def test_scores_runs_and_trees_show_themselves() -> None:
    torch.manual_seed(0)
    lm = random_model("gpt2", train("bpe:300", [TEXT]), width=8, heads=2, layers=1)
    assert "<b>GPT2</b>" in lm._repr_html_()
    score = lm.score("the cat sat on the mat .")
    shown = score._repr_html_()
    assert f"{score.bits:,.1f} bits over {score.tokens} tokens" in shown
    assert shown.count("<span") == score.tokens
    trees = []
    lm.generate("the cat", tokens=4, beams=2, trace=trees.append)
    assert trees[0]._repr_html_().startswith("<iframe sandbox")


def test_alignments_and_comparisons_show_themselves(tmp_path: Path) -> None:
    alignment = Alignment(["a", "b"], ["x"], [[0.25, 0.75]])
    assert "x → b: 75.0%" in alignment._repr_html_()
    (tmp_path / "report.html").write_text("<p>report</p>")
    assert "&lt;p&gt;report" in Published({}, tmp_path / "report.html", png=False)._repr_html_()


FIGURES = [
    Heatmap(HOSTILE, [HOSTILE], [HOSTILE], [[-0.5]]),
    Bars(HOSTILE, [Bar(HOSTILE, 0.4, 0.3, 0.5, ((HOSTILE, 0.2),)), Bar("b", float("nan"))], line=0.5),
    Lines(HOSTILE, [HOSTILE, "1"], [(HOSTILE, [0.1, float("nan")]), ("c", [0.2, 0.2])]),
    Scatter(HOSTILE, [Dot(0, 1, HOSTILE, HOSTILE), Dot(1, 2, "b", "c")]),
    ColouredText(HOSTILE, [(HOSTILE, 0.4), ("b\n", -1.0), ("", 0.0)], 1.0),
]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: type(figure).__name__)
def test_figures_escape_what_they_show_and_draw_themselves(figure, tmp_path: Path) -> None:
    shown = figure.html()
    assert "<script" not in shown
    assert not re.search(r'aria-label="[^"]*"[^ >]*"', shown)
    save_png([figure], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_figures_of_nothing_are_no_error(tmp_path: Path) -> None:
    for figure in (Heatmap("t", [], [], []), Bars("t", []), Lines("t", [], []), Scatter("t"), ColouredText("t", [], 1)):
        assert figure.html()
    with pytest.raises(ValueError, match="has no picture"):
        save_png([], tmp_path / "none.png")
