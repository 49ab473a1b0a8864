"""Alignments against attention computed by hand from the model's own queries and keys."""

from __future__ import annotations

import math

import pytest
import torch

import lmlab
from lmlab.analysis.alignment import Alignment
from lmlab.pages.figures import save_png
from lmlab.pages.views import MOST_ALIGNMENTS, draw_alignment, to_alignments_page
from tolerances import rounding
from translators import write_translator

SOURCES = ["the cat sat on the mat .", "a dog"]
TARGETS = ["die katze sass .", "ein hund lief zum baum ."]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return lmlab.load(write_translator(tmp_path_factory.mktemp("run"), seed=5))


@torch.inference_mode()
def by_hand(model, source, target, layer):
    """softmax(QKᵀ/√d) [H, T, S] of one decoder block, from what goes into it."""
    (row,), (text,) = model.translator.source_rows([source]), model.translator.target_rows([target])
    block, seen = model.model.decoder.blocks[layer].cross_attention, {}
    hook = block.register_forward_hook(lambda module, inputs, output: seen.update(y=inputs[0], known=inputs[1]))
    model.model(torch.tensor([text[:-1]]), source=torch.tensor([row]))
    hook.remove()
    heads, width = block.heads, block.head_width
    queries = block.query(seen["y"])[0].view(-1, heads, width)
    keys = block.remember(*seen["known"])[0, :, 0]  # [H, S, d]
    return torch.stack([(queries[:, h] @ keys[h].T / math.sqrt(width)).softmax(-1) for h in range(heads)])


@pytest.mark.parametrize("layer", [-1, 0, 1])
@pytest.mark.parametrize("head", [None, 0, 1])
def test_weights_are_those_of_the_block_and_head_that_was_asked_for(model, layer, head):
    found = model.alignments(SOURCES, TARGETS, layer=layer, head=head)
    for source, target, alignment in zip(SOURCES, TARGETS, found, strict=True):
        weights = by_hand(model, source, target, layer)
        expected = weights.mean(0) if head is None else weights[head]
        torch.testing.assert_close(torch.tensor(alignment.weights), expected, atol=1e-5, rtol=1e-4)
        assert alignment.source == [*source.split(), "<eos>"]
        assert alignment.target == [*target.split(), "<eos>"]
        sums = rounding(terms=len(alignment.source), depth=3)  # of softmax, over heads, and here
        assert [sum(row) for row in alignment.weights] == pytest.approx([1.0] * len(alignment.target), rel=sums)


def test_looking_changes_nothing_and_leaves_no_trace(model):
    before = model.translate(SOURCES, beams=3)
    model.alignments(SOURCES[0], TARGETS[0])
    assert not any(module._forward_hooks for module in model.model.modules())
    assert model.translate(SOURCES, beams=3) == before


def test_batches_change_nothing(model):
    one, all_ = (model.alignments(SOURCES, TARGETS, batch=batch) for batch in (1, 8))
    for a, b in zip(one, all_, strict=True):
        torch.testing.assert_close(torch.tensor(a.weights), torch.tensor(b.weights))


def test_a_source_that_is_read_backwards_is_shown_forwards(tmp_path):
    runs = [write_translator(tmp_path / name, reverse=name == "back") for name in ("back", "forth")]
    back, forth = map(lmlab.load, runs)
    (found,) = back.alignments("the cat sat", "die katze")
    (turned,) = forth.alignments("sat cat the", "die katze")
    assert found.source == ["the", "cat", "sat", "<eos>"]
    for ours, theirs in zip(found.weights, turned.weights, strict=True):
        assert ours == pytest.approx([*theirs[2::-1], theirs[3]], abs=1e-6)


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("attention", ["dot", "additive"])
def test_a_recurrent_decoder_may_look_token_by_token(tmp_path, attention, feeding):
    settings = {"width": 12, "hidden": 8, "layers": 1, "attention": attention, "feeding": feeding}
    run = write_translator(tmp_path, kind="seq2seq", size=settings)
    model, looked = lmlab.load(run), []
    alignment = model.model.alignment
    hook = alignment.register_forward_hook(lambda module, inputs, output: looked.append(inputs))
    found = model.alignments(SOURCES[0], TARGETS[0])[0]
    hook.remove()
    assert len(looked) == (len(found.target) if feeding else 1)
    with torch.inference_mode():
        expected = torch.cat([alignment.scores(s, keys).softmax(-1)[0] for s, keys, *_ in looked])
    assert (len(found.target), len(found.source)) == expected.shape
    torch.testing.assert_close(torch.tensor(found.weights), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"), [({"layer": 2}, "layer = 2: .* 0 to 1"), ({"head": 2}, "head = 2: there are 2")]
)
def test_what_is_not_there_is_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        model.alignments(SOURCES, TARGETS, **options)


def test_pairs_must_be_pairs_and_attention_must_be_there(model, tmp_path):
    with pytest.raises(ValueError, match="2 sources and 1 targets"):
        model.alignments(SOURCES, TARGETS[:1])
    run = write_translator(tmp_path, kind="seq2seq", size={"width": 8, "hidden": 8, "attention": "none"})
    with pytest.raises(ValueError, match="no attention from the target"):
        lmlab.load(run).alignments(SOURCES, TARGETS)


def test_the_page_has_each_weight_and_runs_nothing(model):
    import re

    found = model.alignments(SOURCES, [*TARGETS[:1], "<hund> & baum"])
    page = to_alignments_page(found, model="en-de", what="Which weights.")
    shown = [float(each) for each in re.findall(r'fill-opacity="([\d.]+)"', page)]
    assert shown == pytest.approx([w for each in found for row in each.weights for w in row], abs=6e-4)
    assert "Which weights." in page
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    odd = Alignment(["<b>", "e"], ["&amp;", "e"], [[1.0, 0.0], [0.5, 0.5]])
    assert "<b>" not in draw_alignment(*odd[:3]).html()
    many = to_alignments_page([odd] * (MOST_ALIGNMENTS + 1))
    assert many.count("<svg") == MOST_ALIGNMENTS
    assert f"first {MOST_ALIGNMENTS} of {MOST_ALIGNMENTS + 1}" in many


def test_png_is_written_or_says_what_is_missing(model, tmp_path):
    (found,) = model.alignments(SOURCES[0], TARGETS[0])
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match=r"lmlab\[report\]"):
            save_png([draw_alignment(*found[:3])], tmp_path / "a.png")
    else:
        save_png([draw_alignment(*found[:3])], tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
