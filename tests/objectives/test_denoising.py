"""BART's damage to a text: each of the five by hand and in its distribution, and the batches made of it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from framed import pair_frame
from lmlab.config import build
from lmlab.data.corpora.text import prepare_text
from lmlab.data.loaders.passages import PassageRows
from lmlab.models.bart import Bart, BartConfig
from lmlab.objectives import noise
from lmlab.objectives.denoising import Denoising, DenoisingConfig
from lmlab.objectives.noise import Ragged
from lmlab.objectives.objective import IGNORE
from lmlab.tokenizers import train
from losses import loss_of, mean_of

MASK = -1


def ragged(*rows: list[int]) -> Ragged:
    return Ragged(np.array(list(chain(*rows)), np.int64), np.array([len(row) for row in rows]))


def lists(rows: Ragged) -> list[list[int]]:
    ends = np.cumsum(rows.lengths)
    assert ends[-1] == len(rows.tokens)
    return [rows.tokens[end - n : end].tolist() for end, n in zip(ends, rows.lengths, strict=True)]


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_sentences_are_permuted_within_their_row() -> None:
    rows = ragged([1, 2, 3, 4, 5, 6], [7, 8, 9])
    begins = np.array([1, 0, 1, 1, 0, 0, 0, 1, 0], bool)  # 12|3|456 and 7|89: a row always begins a sentence
    seen = {str(lists(noise.permute_sentences(rows, begins, generator(seed)))) for seed in range(200)}
    first = [[1, 2], [3], [4, 5, 6]]
    orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
    expected = {
        str([list(chain(*(first[i] for i in order))), second]) for order in orders for second in ([7, 8, 9], [8, 9, 7])
    }
    assert seen == expected


def test_rotation_begins_at_any_token_with_the_same_chance() -> None:
    rows = ragged(*[[1, 2, 3, 4]] * 4000, [5])
    rotated = lists(noise.rotate(rows, 1.0, generator()))
    assert rotated[-1] == [5]
    counts = {str(row): rotated.count(row) for row in ([1, 2, 3, 4], [2, 3, 4, 1], [3, 4, 1, 2], [4, 1, 2, 3])}
    assert sum(counts.values()) == 4000
    assert all(900 < count < 1100 for count in counts.values())
    half = lists(noise.rotate(rows, 0.5, generator()))
    assert pytest.approx(half.count([1, 2, 3, 4]) / 4000, abs=0.03) == 0.5 + 0.5 / 4
    assert lists(noise.rotate(rows, 0.0, generator())) == lists(rows)


def test_deletion_keeps_the_order() -> None:
    rows = ragged(list(range(1000)), [], [5], list(range(500)))
    damaged = noise.delete(rows, 0.2, generator())
    after = lists(damaged)
    assert all(row == sorted(set(row)) for row in after)
    assert set(after[0]) <= set(range(1000))
    assert len(after[0]) == pytest.approx(800, abs=50)
    assert len(after[3]) == pytest.approx(400, abs=40)
    assert after[1] == []


def test_masks_stand_where_the_tokens_stood() -> None:
    rows = ragged(list(range(2000)), list(range(7)))
    masked = noise.mask(rows, 0.15, generator(), token=MASK)
    hidden = masked.tokens == MASK
    assert hidden.mean() == pytest.approx(0.15, abs=0.03)
    assert (masked.tokens == np.where(hidden, MASK, rows.tokens)).all()
    assert masked.lengths.tolist() == [2000, 7]


def spans_of(before: list[int], after: list[int]) -> list[int]:
    """The number of tokens that went into each mask (masks side by side are counted as one)."""
    spans, place, masks = [], 0, 0
    for token in [*after, len(before)]:
        if token == MASK:
            masks += 1
            continue
        if masks:
            spans.append(token - place)
        else:
            assert token == place, "what is not in a span stays"
        place, masks = token + 1, 0
    return spans


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.floats(0, 1), st.integers(0, 1000))
def test_infilling_hides_its_share(lengths: list[int], fraction: float, seed: int) -> None:
    rows = ragged(*(list(range(n)) for n in lengths))
    after = lists(noise.infill(rows, fraction, generator(seed), token=MASK))
    for n, row in zip(lengths, after, strict=True):
        kept = [token for token in row if token != MASK]
        assert kept == sorted(set(kept))
        assert set(kept) <= set(range(n))
        assert n - len(kept) in (int(np.floor(n * fraction)), int(np.ceil(n * fraction)))
        assert sum(spans_of(list(range(n)), row)) == n - len(kept)


def test_spans_are_poisson() -> None:
    spans = noise._draw_spans(np.full(400, 3000), generator())
    assert (np.where(spans > 0, spans, 0).sum(1) == 3000).all()
    drawn = np.concatenate([row[row >= 0][:-1] for row in spans])  # the last of a row is cut
    assert drawn.mean() == pytest.approx(3, abs=0.02)
    assert drawn.var() == pytest.approx(3, abs=0.05)
    for k, chance in enumerate([0.0498, 0.1494, 0.2240, 0.2240, 0.1680]):  # e^-3 3^k / k!
        assert (drawn == k).mean() == pytest.approx(chance, abs=0.003)
    assert (noise._draw_spans(np.array([0, 1]), generator()) >= 0).any(1).tolist() == [False, True]


def test_infilled_text_by_hand() -> None:
    """One hidden token of three: a mask in its place, after perhaps some that only insert."""
    seen: dict[str, int] = {}
    for seed in range(3000):
        (row,) = lists(noise.infill(ragged([0, 1, 2]), 1 / 3, generator(seed), token=MASK))
        if len(row) == 3:
            seen[str(row)] = seen.get(str(row), 0) + 1
        else:
            assert row.count(MASK) == len(row) - 2
    assert set(seen) == {str([MASK, 1, 2]), str([0, MASK, 2]), str([0, 1, MASK])}
    total = sum(seen.values())
    assert total / 3000 == pytest.approx(1 - np.exp(-3), abs=0.015), "a span of no tokens inserts a mask"
    assert all(count / total == pytest.approx(1 / 3, abs=0.03) for count in seen.values())


def test_places_of_spans_are_even() -> None:
    after = noise.infill(ragged(*[list(range(30))] * 3000), 0.3, generator(), token=MASK)
    kept = np.bincount(after.tokens[after.tokens != MASK], minlength=30) / 3000
    assert kept.mean() == pytest.approx(0.7, abs=1e-9)
    assert kept == pytest.approx(kept[::-1], abs=0.04)
    assert kept[3:-3] == pytest.approx(np.full(24, 0.68), abs=0.03), "the ends are spared: spans do not cross them"


TOKENIZER = train("characters", ["abcdefghijklmnopqrstuvwxyz. A"]).with_specials(("mask", "pad"))


def objective(**options: object) -> Denoising:
    quiet: dict[str, object] = {"permute": False, "infill": 0.0, **options}
    return Denoising(build(DenoisingConfig, quiet, where="objective"), TOKENIZER, pair_frame(TOKENIZER))


def passages(*texts: str) -> PassageRows:
    rows = [TOKENIZER.encode(text) for text in texts]
    begins: NDArray[np.bool_] = np.array([i == 0 or text[i - 1] == "." for text in texts for i in range(len(text))])
    return PassageRows(np.array(list(chain(*rows)), np.int64), np.array(list(map(len, rows))), begins)


def test_batches_by_hand() -> None:
    denoising = objective(mask=1.0)
    batch = denoising.batch(passages("abc", "d"), generator())
    a, b, c, d = TOKENIZER.encode("abcd")
    mask, pad, end = TOKENIZER.special("mask"), TOKENIZER.special("pad"), TOKENIZER.boundary
    assert batch.inputs["source"].tolist() == [[mask, mask, mask, end], [mask, end, pad, pad]]
    assert batch.inputs["lengths"].tolist() == [4, 2]
    assert batch.inputs["tokens"].tolist() == [[end, a, b, c], [end, d, end, pad]]
    assert batch.labels["targets"].tolist() == [[a, b, c, end], [d, end, IGNORE, IGNORE]]
    assert batch.units["tokens"] == 6
    assert len({mask, pad, end, *TOKENIZER.encode("abcd")}) == 7


def test_all_five_together_and_purity() -> None:
    texts = ("ab.cd.ef.gh", "xyz", "m.n.o.p.q.r.s.t")
    denoising = objective(permute=True, rotate=0.5, delete=0.1, infill=0.3, mask=0.1)
    one, same, other = (denoising.batch(passages(*texts), generator(seed)) for seed in (1, 1, 2))
    assert one.inputs["source"].tolist() == same.inputs["source"].tolist()
    assert one.inputs["source"].tolist() != other.inputs["source"].tolist()
    assert one.labels["targets"].tolist() == other.labels["targets"].tolist()
    mask = TOKENIZER.special("mask")
    for row, n, text in zip(one.inputs["source"].tolist(), one.inputs["lengths"].tolist(), texts, strict=True):
        assert row[n - 1] == TOKENIZER.boundary
        assert set(row[: n - 1]) <= {mask, *TOKENIZER.encode(text)}


def test_permutation_alone_keeps_every_token() -> None:
    denoising = objective(permute=True)
    batch = denoising.batch(passages("ab.cd.ef", "g.h"), generator(3))
    for row, text in zip(batch.inputs["source"].tolist(), ("ab.cd.ef", "g.h"), strict=True):
        assert sorted(row[: len(text)]) == sorted(TOKENIZER.encode(text))
    assert batch.inputs["lengths"].tolist() == [9, 4]


def test_a_source_never_outgrows_the_longest_text() -> None:
    denoising = objective(infill=0.34)
    for seed in range(300):
        batch = denoising.batch(passages("abc", "abc"), generator(seed))
        assert batch.inputs["source"].shape[1] <= 4
        assert batch.inputs["source"][range(2), batch.inputs["lengths"] - 1].tolist() == [TOKENIZER.boundary] * 2


def test_the_loader_finds_sentences_of_documents(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("A cat. A dog. A fox.\nb c d e f g h\n")
    corpus = prepare_text([tmp_path / "t"], tokenizer=TOKENIZER, documents="lines", split=(1,), cache=tmp_path)
    denoising = Denoising(DenoisingConfig(infill=0.0), TOKENIZER, pair_frame(TOKENIZER))
    loader = denoising.loader(corpus.train, batch=2, window=30, seed=0, streams=False)
    assert loader.steps_per_epoch == 1
    sources = set()
    for seed in range(60):
        batch = denoising.batch(loader.batch(seed), generator(seed))
        for row, n in zip(batch.inputs["source"].tolist(), batch.inputs["lengths"].tolist(), strict=True):
            sources.add("".join(TOKENIZER.show(token) for token in row[: n - 1]))
    assert {source for source in sources if "b" in source} == {"b c d e f g h"}
    dogs = {source.strip() for source in sources if "dog" in source}
    assert dogs == {"A cat. A dog. A fox.", "A cat. A fox. A dog.", "A dog.A cat. A fox.", "A dog. A fox.A cat.",
                    "A fox.A cat. A dog.", "A fox. A dog.A cat."}  # fmt: skip


def test_a_small_bart_learns_to_restore_words(tmp_path: Path) -> None:
    """Six words with some letters masked: after a few steps the loss is a fraction of the first one."""
    words = ["stone", "river", "cloud", "plant", "horse", "light"]
    (tmp_path / "t").write_text("".join(f"{words[i % 6]}\n" for i in range(60)))
    corpus = prepare_text([tmp_path / "t"], tokenizer=TOKENIZER, documents="lines", split=(1,), cache=tmp_path)
    denoising = objective(mask=0.3)
    loader = denoising.loader(corpus.train, batch=32, window=8, seed=0, streams=False)
    torch.manual_seed(0)
    config = {"vocabulary": TOKENIZER.vocabulary, "width": 32, "heads": 2, "layers": 1, "inner": 64, "window": 8}
    model = Bart(build(BartConfig, {**config, "dropout": 0.0}, where="model"))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for step in range(60):
        batch = denoising.batch(loader.batch(step), generator(step))
        mean = mean_of(denoising, batch, loss_of(denoising, model, batch))
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        losses.append(mean.item())
    assert losses[-1] < 0.3 * losses[0]
    whole = 3 * model.pretraining_flops(6) * loader.units_per_step["tokens"]
    assert denoising.step_flops(model, {}, loader) == pytest.approx(whole)


def test_bart_is_the_default_and_something_must_be_damaged() -> None:
    assert DenoisingConfig() == DenoisingConfig(infill=0.3, permute=True, mask=0.0, delete=0.0, rotate=0.0)
    with pytest.raises(ValueError, match="no noising function is active"):
        objective()
    with pytest.raises(ValueError, match=r"objective\.infill = 1\.2"):
        objective(infill=1.2)
