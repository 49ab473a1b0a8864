"""Masks: how many, where and what in their place; and the loss, against transformers and by hand."""

from __future__ import annotations

import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from framed import encoder_frame
from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.loaders.rows import LengthSchedule, Rows, TextRows
from lmlab.models.bert import Bert, BertConfig
from lmlab.objectives import create_objective
from lmlab.objectives.masked import Masked, MaskedConfig, number_units, sample_numbers
from lmlab.objectives.objective import IGNORE, Batch
from lmlab.tokenizers import Tokenizer, train
from lmlab.tokenizers.pieces import describe_pieces
from losses import loss_of, mean_of

RANDOM = np.random.default_rng(0)
SYLLABLES = ["ba", "ke", "lo", "mi", "nu", "pra", "sto", "ve"]
WORDS = ["".join(RANDOM.choice(SYLLABLES, RANDOM.integers(1, 6))) for _ in range(200)]


def write_text(words: int, *, seed: int) -> str:
    random = np.random.default_rng(seed)
    return " ".join(word + ("." if random.random() < 0.15 else "") for word in random.choice(WORDS, words))


TEXTS = [write_text(400, seed=seed) for seed in range(10)]


def tokenizer_of(spec: str) -> Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(spec, TEXTS).with_specials(Masked.specials)


def split_of(tokenizer: Tokenizer, texts: list[str]) -> TextSplit:
    encoded = [[*tokenizer.encode(text), tokenizer.boundary] for text in texts]
    places = 1 + np.cumsum([0, *map(len, encoded[:-1])])
    tokens = np.concatenate([[tokenizer.boundary], *encoded]).astype(np.uint16)
    return TextSplit(tokens, places, 0, 0, None, None, None)


@pytest.fixture(scope="module")
def pieces_of() -> Tokenizer:
    return tokenizer_of("wordpiece:120")


@pytest.fixture(scope="module")
def data(pieces_of: Tokenizer) -> TextSplit:
    return split_of(pieces_of, TEXTS)


def masked(tokenizer: Tokenizer, **settings: Any) -> Masked:
    return Masked(MaskedConfig(**settings), tokenizer, encoder_frame(tokenizer))


def rows_and_batches(
    tokenizer: Tokenizer, data: TextSplit, steps: int, *, batch: int = 16, window: int = 64, **settings: Any
) -> list[tuple[Rows, Batch]]:
    objective = masked(tokenizer, **settings)
    loader = objective.loader(data, batch=batch, window=window, seed=1, streams=False)
    found = []
    for step in range(steps):
        raw = loader.batch(step)
        found.append((raw, objective.batch(raw, np.random.default_rng([5, step]))))
    return found


def special_ids(tokenizer: Tokenizer) -> set[int]:
    unknown = tokenizer.engine.token_to_id("[UNK]")
    return {tokenizer.boundary, unknown, *(tokenizer.special(name) for name in Masked.specials)} - {None}


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize("pairs", ["none", "next-sentence", "sentence-order"])
@pytest.mark.parametrize(("rate", "window", "count"), [(0.15, 64, 10), (0.15, 33, 5), (0.4, 64, 26), (0.01, 20, 1)])
def test_the_exact_number_of_tokens_of_each_row_is_chosen(
    pieces_of: Tokenizer, data: TextSplit, unit: str, pairs: str, rate: float, window: int, count: int
) -> None:
    for raw, batch in rows_and_batches(pieces_of, data, 3, unit=unit, pairs=pairs, masking_rate=rate, window=window):
        tokens, places = batch.inputs["tokens"], batch.labels["positions"]
        assert raw.tokens.shape == tuple(tokens.shape) == (16, window)
        assert places is not None
        assert batch.labels["targets"].shape == places.shape == (16, count)
        assert (places.diff(dim=1) > 0).all(), "every place once, in the order of the text"
        assert torch.equal(torch.from_numpy(raw.tokens).gather(1, places), batch.labels["targets"])
        assert not set(batch.labels["targets"].flatten().tolist()) & special_ids(pieces_of)
        assert not set(tokens.flatten().tolist()) & special_ids(pieces_of) - {
            *raw.tokens.flatten().tolist(),
            pieces_of.special("mask"),
        }
        other = torch.ones_like(tokens, dtype=torch.bool).scatter(1, places, False)
        assert torch.equal(tokens[other], torch.from_numpy(raw.tokens)[other]), "nothing else is changed"
        assert batch.units["tokens"] == tokens.numel()
        assert ("segments" in batch.inputs) == ("pair" in batch.labels) == (pairs != "none")
        assert "lengths" not in batch.inputs


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize(("mask", "random"), [(0.8, 0.1), (0.5, 0.5), (0.0, 0.3), (1.0, 0.0)])
def test_shares_of_the_three_fates(
    pieces_of: Tokenizer, data: TextSplit, unit: str, mask: float, random: float
) -> None:
    counts, ordinary, total = np.zeros(3), [], 0
    for _, batch in rows_and_batches(
        pieces_of, data, 150, unit=unit, mask_fraction=mask, random_fraction=random, batch=32
    ):
        assert batch.labels["positions"] is not None
        found = batch.inputs["tokens"].gather(1, batch.labels["positions"])
        masked, kept = found == pieces_of.special("mask"), found == batch.labels["targets"]
        counts += [masked.sum(), (~masked & ~kept).sum(), kept.sum()]
        ordinary += found[~masked & ~kept].tolist()
        total += found.numel()
    same = random / (pieces_of.vocabulary - len(special_ids(pieces_of)))  # a random token may be the right one
    for got, wanted in zip(counts, [mask, random - same, 1 - mask - random + same], strict=True):
        spread = (total * wanted * (1 - wanted)) ** 0.5 * (2.5 if unit == "span" else 1)
        assert abs(got - total * wanted) <= 4.5 * spread + 1e-9
    if random:
        counted = np.bincount(ordinary, minlength=pieces_of.vocabulary)
        allowed = np.array([i not in special_ids(pieces_of) for i in range(pieces_of.vocabulary)])
        assert not counted[~allowed].any()
        assert (counted[allowed] > 0).all(), "every ordinary token is drawn"


def test_every_place_of_a_row_is_chosen_as_often(pieces_of: Tokenizer, data: TextSplit) -> None:
    counts = np.zeros(64)
    for _, batch in rows_and_batches(pieces_of, data, 100, batch=32):
        assert batch.labels["positions"] is not None
        counts += np.bincount(batch.labels["positions"].flatten(), minlength=64)
    assert counts[0] == counts[-1] == 0
    expected = 100 * 32 * 10 / 62
    assert (abs(counts[1:-1] - expected) < 6 * expected**0.5).all()


@pytest.mark.parametrize("spec", ["wordpiece:120", "bpe:300", "characters"])
def test_whole_words_are_whole_but_for_one(spec: str) -> None:
    tokenizer = tokenizer_of(spec)
    objective = masked(tokenizer, unit="word")
    several = 0
    for raw, batch in rows_and_batches(tokenizer, split_of(tokenizer, TEXTS), 20, unit="word", window=96):
        assert batch.labels["positions"] is not None
        chosen = torch.zeros(raw.tokens.shape, dtype=torch.bool).scatter(1, batch.labels["positions"], True).numpy()
        for row, mine in zip(raw.tokens, chosen, strict=True):
            words = np.cumsum(objective.pieces.begins_word(row))
            fractions = [mine[words == word].mean() for word in np.unique(words)]
            assert sum(0 < fraction < 1 for fraction in fractions) <= 1, "only the last word may be cut"
            several += sum(fraction == 1 and (words == word).sum() > 1 for word, fraction in enumerate(fractions, 1))
    assert several > 100


def test_spans_are_as_long_as_published() -> None:
    """P(n) ∝ 0.8ⁿ for 1 to 10 words, 3.8 on average; spans end at special tokens."""
    tokenizer = tokenizer_of("wordpiece:120")
    pieces = describe_pieces(tokenizer)
    random = np.random.default_rng(0)
    rows = np.full((50, 500), tokenizer.encode("ba")[0])
    numbers = number_units(rows, random.random(rows.shape), pieces, "span")
    lengths = np.concatenate([np.bincount(row)[:-1] for row in numbers])
    fractions = 0.8 ** np.arange(1, 11) / (0.8 ** np.arange(1, 11)).sum()
    assert (fractions * np.arange(1, 11)).sum() == pytest.approx(3.8, abs=0.01)
    counts = np.bincount(lengths, minlength=11)
    assert len(counts) == 11
    expected = fractions * len(lengths)
    assert (abs(counts[1:] - expected) < 5 * expected**0.5).all()

    rows[:, ::7] = tokenizer.special("sep")
    numbers = number_units(rows, random.random(rows.shape), pieces, "span")
    assert (np.diff(numbers, axis=1)[:, ::7] == 1).all()
    assert (np.diff(numbers, axis=1)[:, 6::7] == 1).all()


def test_spans_are_whole_words_and_whole_but_for_one(pieces_of: Tokenizer, data: TextSplit) -> None:
    objective = masked(pieces_of, unit="span")
    loader = objective.loader(data, batch=16, window=96, seed=1, streams=False)
    long = 0
    for step in range(20):
        raw = loader.batch(step)
        batch = objective.batch(raw, np.random.default_rng(step))
        draws = sample_numbers(raw, np.random.default_rng(step), dynamic=True)
        numbers = number_units(raw.tokens, draws.length, objective.pieces, "span")
        assert batch.labels["positions"] is not None
        for row in range(16):
            chosen = np.bincount(numbers[row, batch.labels["positions"][row]], minlength=numbers[row, -1] + 1)
            sizes = np.bincount(numbers[row])
            assert ((chosen > 0) & (chosen < sizes)).sum() <= 1, "only the last span may be cut"
            long += ((chosen == sizes) & (sizes > 4)).sum()
            begins = np.flatnonzero(np.diff(numbers[row], prepend=-1))
            assert objective.pieces.begins_word(raw.tokens[row])[begins].all()
    assert long > 50


@pytest.mark.parametrize("pairs", ["none", "next-sentence", "sentence-order"])
@pytest.mark.parametrize("unit", ["token", "span"])
def test_static_masks_are_those_of_the_row_and_dynamic_ones_are_new(
    pieces_of: Tokenizer, data: TextSplit, pairs: str, unit: str
) -> None:
    def epochs(dynamic: bool) -> list[dict[tuple[int, ...], tuple[list[int], list[int]]]]:
        objective = masked(pieces_of, dynamic=dynamic, pairs=pairs, unit=unit)
        probe = objective.loader(data, batch=1, window=64, seed=1, streams=False)
        loader = objective.loader(data, batch=int(probe.steps_per_epoch), window=64, seed=1, streams=False)
        found = []
        for epoch in range(2):
            raw = loader.batch(epoch)
            batch = objective.batch(raw, np.random.default_rng([5, epoch]))
            assert batch.labels["positions"] is not None
            columns = (raw.tokens.tolist(), batch.inputs["tokens"].tolist(), batch.labels["positions"].tolist())
            found.append({tuple(row): (tokens, places) for row, tokens, places in zip(*columns, strict=True)})
        return found

    first, second = epochs(dynamic=False)
    assert first == second
    first, second = epochs(dynamic=True)
    common = first.keys() & second.keys()
    assert all(first[row] != second[row] for row in common)


def test_batches_are_a_pure_function_of_rows_and_generator(pieces_of: Tokenizer, data: TextSplit) -> None:
    for settings in ({}, {"pairs": "next-sentence", "unit": "span"}, {"dynamic": False, "unit": "word"}):
        once = rows_and_batches(pieces_of, data, 4, **settings)
        with ThreadPoolExecutor(1) as thread:
            again = thread.submit(rows_and_batches, pieces_of, data, 4, **settings).result()
        for (raw, batch), (other_raw, other) in zip(once, again, strict=True):
            assert np.array_equal(raw.tokens, other_raw.tokens)
            assert torch.equal(batch.inputs["tokens"], other.inputs["tokens"])
            assert torch.equal(batch.labels["targets"], other.labels["targets"])


def test_rows_of_full_sentences_cover_the_text_and_cross_documents(pieces_of: Tokenizer, data: TextSplit) -> None:
    objective = masked(pieces_of, dynamic=False)
    loader = objective.loader(data, batch=8, window=64, seed=1, streams=False)
    assert isinstance(loader, TextRows)
    rows = np.concatenate([loader.batch(step).tokens for step in range(int(np.ceil(loader.steps_per_epoch)))])
    rows = rows[: loader.count]
    assert (rows[:, 0] == pieces_of.special("cls")).all()
    assert (rows[:, -1] == pieces_of.special("sep")).all()
    whole = data.tokens[: loader.count * 62].reshape(-1, 62)
    assert sorted(rows[:, 1:-1].tolist()) == sorted(whole.tolist())
    assert any(pieces_of.boundary in row[2:-2] for row in rows)
    assert len(data.tokens) - loader.count * 62 < 62
    again = masked(pieces_of).loader(data, batch=8, window=64, seed=1, streams=False)
    starts = [again.batch(step).identity[:, 1] % 62 for step in (0, 30, 60, 90)]
    assert len({int(start[0]) for start in starts}) > 1, "epochs begin at offsets of their own"


def test_padded_rows_have_fewer_masks(pieces_of: Tokenizer) -> None:
    short = split_of(pieces_of, [TEXTS[0], "ba ke lo. mi nu pra ba ke.", "ve sto. ba lo mi nu. ba", TEXTS[1]])
    for raw, batch in rows_and_batches(pieces_of, short, 6, pairs="sentence-order", batch=24):
        assert raw.lengths is not None
        wanted = np.maximum(1, np.round(0.15 * raw.lengths))
        assert batch.labels["targets"].ne(IGNORE).sum(1).tolist() == wanted.tolist()
        assert batch.labels["kept"].tolist() == batch.labels["targets"].flatten().ne(IGNORE).nonzero()[:, 0].tolist()
        assert batch.units["tokens"] == raw.lengths.sum()
        assert (raw.lengths < 64).any()


def test_a_row_of_special_tokens_has_no_masks(pieces_of: Tokenizer) -> None:
    objective = masked(pieces_of)
    rows = np.full((2, 20), pieces_of.boundary)
    rows[1, 3] = pieces_of.encode("ba")[0]
    batch = objective.batch(Rows(rows, np.zeros((2, 2), np.int64)), np.random.default_rng(0))
    assert batch.labels["targets"][0].eq(IGNORE).all()
    assert batch.labels["targets"][1].ne(IGNORE).sum() == 1
    model = Bert(BertConfig(vocabulary=pieces_of.vocabulary, width=16, heads=2, layers=1, window=20))
    loss = loss_of(objective, model, batch)
    assert batch.counts == {"masked": 1}
    assert torch.isfinite(mean_of(objective, batch, loss))


def test_short_rows_come_first_and_have_as_many_tokens(pieces_of: Tokenizer, data: TextSplit) -> None:
    objective = masked(pieces_of, short=16, short_fraction=0.75, pairs="sentence-order")
    loader = objective.loader(data, batch=4, window=64, seed=1, streams=False)
    assert isinstance(loader, LengthSchedule)
    assert loader.batch(0).tokens.shape == (4, 64), "validation, which sets no number of steps, sees the whole window"
    loader.plan(40)
    shapes = [loader.batch(step).tokens.shape for step in range(40)]
    assert shapes == [(16, 16)] * 30 + [(4, 64)] * 10
    assert loader.units_per_step["tokens"] == pytest.approx(4 * 64)


def test_several_short_lengths_follow_each_other_with_as_many_steps_each(pieces_of: Tokenizer, data: TextSplit) -> None:
    loader = masked(pieces_of, short=[8, 32], short_fraction=0.6).loader(
        data, batch=2, window=64, seed=1, streams=False
    )
    loader.plan(20)
    shapes = [loader.batch(step).tokens.shape for step in range(20)]
    assert shapes == [(16, 8)] * 6 + [(4, 32)] * 6 + [(2, 64)] * 8


def test_with_a_budget_in_time_the_lengths_alternate(pieces_of: Tokenizer, data: TextSplit) -> None:
    loader = masked(pieces_of, short=[8, 32], short_fraction=0.5).loader(
        data, batch=2, window=64, seed=1, streams=False
    )
    loader.plan(None)
    lengths = [loader.batch(step).tokens.shape[1] for step in range(256)]
    assert Counter(lengths) == {8: 64, 32: 64, 64: 128}
    assert len(set(lengths[:32])) == 3, "they are mixed"
    again = masked(pieces_of, short=[8, 32], short_fraction=0.5).loader(data, batch=2, window=64, seed=1, streams=False)
    again.plan(None)
    assert np.array_equal(loader.batch(100).tokens, again.batch(100).tokens)


def test_rows_that_are_too_short_for_two_texts_have_no_loss_of_pairs(pieces_of: Tokenizer, data: TextSplit) -> None:
    objective = masked(pieces_of, short=[16, 32], short_fraction=0.5, pairs="next-sentence")
    loader = objective.loader(data, batch=4, window=64, seed=1, streams=False)
    loader.plan(4)
    model = Bert(BertConfig(vocabulary=pieces_of.vocabulary, width=16, heads=2, layers=1, window=64))
    pairs = []
    for step in (0, 1, 2):
        batch = objective.batch(loader.batch(step), np.random.default_rng(0))
        loss = loss_of(objective, model, batch)
        pairs.append((batch.counts["pair"], loss.sums["pair"].item() > 0))
        assert torch.isfinite(mean_of(objective, batch, loss))
        mean_of(objective, batch, loss).backward()
        assert model.pair is not None
        assert model.pair.weight.grad is not None, "all processes see all gradients"
    assert pairs == [(0, False), (8, True), (4, True)]


def test_short_rows_may_have_a_masking_rate_of_their_own(pieces_of: Tokenizer, data: TextSplit) -> None:
    objective = masked(pieces_of, short=20, short_fraction=0.5, short_masking_rate=0.4)
    loader = objective.loader(data, batch=4, window=60, seed=1, streams=False)
    whole = objective.batch(loader.batch(0), np.random.default_rng(0))
    assert whole.labels["targets"].shape == (4, 9), "validation has the usual rate"
    loader.plan(2)
    short, long = (objective.batch(loader.batch(step), np.random.default_rng(0)) for step in (0, 1))
    assert short.labels["targets"].shape == (12, 8)
    assert long.labels["targets"].shape == (4, 9)
    model = Bert(BertConfig(vocabulary=pieces_of.vocabulary, width=32, heads=2, layers=2, window=60))
    flops = (objective.batch_flops(model, short) + objective.batch_flops(model, long)) / 2
    assert objective.step_flops(model, {}, loader) == pytest.approx(flops)


@pytest.mark.parametrize("short", [4, [], [32, 16], [16, 16], [2, 16]])
def test_short_lengths_that_cannot_be(pieces_of: Tokenizer, short: object) -> None:
    with pytest.raises(ValueError, match=r"objective\.short.*the shortest first: \[16, 64\]"):
        create_objective({"kind": "masked", "short": short}, pieces_of, encoder_frame(pieces_of))


def test_settings_that_cannot_be(pieces_of: Tokenizer, data: TextSplit) -> None:
    with pytest.raises(ValueError, match=r"mask_fraction = 0\.8 and random_fraction = 0\.3 sum to more than 1"):
        create_objective({"kind": "masked", "random_fraction": 0.3}, pieces_of, encoder_frame(pieces_of))
    with pytest.raises(ValueError, match=r"objective\.masking_rate = 0"):
        create_objective({"kind": "masked", "masking_rate": 0}, pieces_of, encoder_frame(pieces_of))
    with pytest.raises(ValueError, match=r"objective\.pairs = 'next'"):
        create_objective({"kind": "masked", "pairs": "next"}, pieces_of, encoder_frame(pieces_of))
    with pytest.raises(ValueError, match=r"short = 64 is not shorter than the window of 64"):
        masked(pieces_of, short=64).loader(data, batch=2, window=64, seed=0, streams=False)
    with pytest.raises(ValueError, match=r"no state.*shuffled"):
        masked(pieces_of).loader(data, batch=2, window=64, seed=0, streams=True)
    with pytest.raises(ValueError, match="no room for text"):
        masked(pieces_of).loader(data, batch=2, window=2, seed=0, streams=False)
    plain = train("bytes", TEXTS)
    with pytest.raises(ValueError, match="no token for pad"):
        masked(plain)
    lacking = plain.with_specials(("pad", "mask"))
    with pytest.raises(ValueError, match="no token for cls"):
        masked(lacking).loader(data, batch=2, window=64, seed=0, streams=False).batch(0)


class Theirs(nn.Module):
    """BertForPreTraining with the methods that an objective asks for."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        from transformers import BertConfig as TheirConfig
        from transformers import BertForPreTraining

        torch.manual_seed(0)
        config = TheirConfig(
            vocab_size=vocabulary, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            max_position_embeddings=64, initializer_range=0.3,
        )  # fmt: skip
        self.bert = BertForPreTraining(config).eval()
        self.eval()

    vocabulary, window, device = 0, None, torch.device("cpu")

    def offers(self) -> tuple[object, ...]:
        return (self,)

    def read(
        self, *, tokens: Tensor, at: Tensor, segments: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        mask = attention_mask(tokens, lengths)
        hidden = self.bert.bert(tokens, token_type_ids=segments, attention_mask=mask)[0]
        return hidden[torch.arange(len(at))[:, None], at]

    fill = nll = head_flops = reading_flops = read

    def logits(self, hidden: Tensor) -> Tensor:
        return self.bert.cls.predictions(hidden)

    def total_nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(hidden), targets, reduction="sum")

    def score_pairs(self, hidden: Tensor) -> Tensor:
        return self.bert.cls.seq_relationship(self.bert.bert.pooler(hidden))

    pair_head_flops = score_pairs


def attention_mask(tokens: Tensor, lengths: Tensor | None) -> Tensor | None:
    return None if lengths is None else (torch.arange(tokens.shape[1]) < lengths[:, None]).long()


@pytest.mark.parametrize("pairs", ["next-sentence", "sentence-order"])
@pytest.mark.parametrize("padded", [False, True])
def test_the_loss_is_that_of_bert_for_pre_training(
    pieces_of: Tokenizer, data: TextSplit, pairs: str, padded: bool
) -> None:
    pytest.importorskip("transformers")
    texts = [*TEXTS[:2], "ba ke lo. mi nu pra ba ke.", "ve sto. ba lo mi nu. ba"] if padded else TEXTS
    model = Theirs(pieces_of.vocabulary)
    objective = masked(pieces_of, pairs=pairs)
    for _, batch in rows_and_batches(pieces_of, split_of(pieces_of, texts), 2, pairs=pairs):
        assert ("lengths" in batch.inputs) == padded
        with torch.no_grad():
            loss = loss_of(objective, model, batch)
            labels = torch.full_like(batch.inputs["tokens"], IGNORE)
            assert batch.labels["positions"] is not None
            for row, (places, targets) in enumerate(
                zip(batch.labels["positions"], batch.labels["targets"], strict=True)
            ):
                kept = targets != IGNORE
                labels[row, places[kept]] = targets[kept]
            theirs = model.bert(
                batch.inputs["tokens"],
                token_type_ids=batch.inputs["segments"],
                attention_mask=attention_mask(batch.inputs["tokens"], batch.inputs.get("lengths")),
                labels=labels,
                next_sentence_label=batch.labels["pair"],
            )
        assert loss.state is None
        assert mean_of(objective, batch, loss).item() == pytest.approx(theirs.loss.item(), rel=1e-5)
        right = (theirs.prediction_logits.argmax(-1) == labels).sum()
        assert loss.watched["accuracy"].sum() == right
        assert loss.watched["accuracy"].numel() == (labels != IGNORE).sum() == batch.counts["masked"]
        assert (
            loss.watched["pair_accuracy"].sum()
            == (theirs.seq_relationship_logits.argmax(-1) == batch.labels["pair"]).sum()
        )


@pytest.mark.parametrize("pairs", ["none", "next-sentence"])
def test_loss_and_gradient_of_our_bert_by_hand(pieces_of: Tokenizer, data: TextSplit, pairs: str) -> None:
    torch.manual_seed(0)
    config = BertConfig(vocabulary=pieces_of.vocabulary, width=32, heads=2, layers=2, window=64, dropout=0.0)
    model = Bert(config).train()
    objective = masked(pieces_of, pairs=pairs)
    ((_, batch),) = rows_and_batches(pieces_of, data, 1, pairs=pairs)
    loss = loss_of(objective, model, batch)
    mean = mean_of(objective, batch, loss)
    mean.backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    model.zero_grad()
    hidden = model(**batch.inputs).hidden
    labels = torch.full_like(batch.inputs["tokens"], IGNORE).scatter(
        1, batch.labels["positions"], batch.labels["targets"]
    )
    by_hand = F.cross_entropy(model.output.logits(hidden).flatten(0, 1), labels.flatten(), ignore_index=IGNORE)
    if pairs != "none":
        by_hand = by_hand + F.cross_entropy(model.pair(model.pool(hidden)), batch.labels["pair"])
    by_hand.backward()
    assert mean.item() == pytest.approx(by_hand.item(), rel=1e-5)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(ours[name], parameter.grad, atol=1e-6), name
    assert "accuracy" not in loss.watched, "the scores are computed once in training"
    assert batch.counts["masked"] == batch.labels["targets"].numel()


def test_flops_are_those_of_the_encoder_and_of_the_head_at_masks(pieces_of: Tokenizer, data: TextSplit) -> None:
    model = Bert(BertConfig(vocabulary=pieces_of.vocabulary, width=32, heads=2, layers=2, window=64))
    objective = masked(pieces_of)
    loader = objective.loader(data, batch=4, window=64, seed=0, streams=False)
    long = 3 * (model.body_flops(64, fraction=10 / 64) * 256 + model.output.flops() * 40)
    assert objective.step_flops(model, {}, loader) == pytest.approx(long)
    half = masked(pieces_of, short=16, short_fraction=0.5)
    scheduled = half.loader(data, batch=4, window=64, seed=0, streams=False)
    short = 3 * (model.body_flops(16, fraction=2 / 16) * 256 + model.output.flops() * 32)
    assert half.step_flops(model, {}, scheduled) == pytest.approx((long + short) / 2)


def test_a_small_bert_learns_from_both_sides() -> None:
    """Rows in which one word is repeated: what stands around a mask says what is in it."""
    tokenizer = tokenizer_of("words")
    random = np.random.default_rng(0)
    text = " ".join(" ".join([WORDS[i]] * 60) for i in random.integers(0, 24, 100))
    objective = masked(tokenizer)
    loader = objective.loader(split_of(tokenizer, [text]), batch=16, window=32, seed=0, streams=False)
    torch.manual_seed(0)
    config = BertConfig(vocabulary=tokenizer.vocabulary, width=32, heads=2, layers=1, window=32, dropout=0.0)
    model = Bert(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(240):
        batch = objective.batch(loader.batch(step), np.random.default_rng(step))
        mean_of(objective, batch, loss_of(objective, model.train(), batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
    batch = objective.batch(loader.batch(1000), np.random.default_rng(1000))
    with torch.no_grad():
        loss = loss_of(objective, model.eval(), batch)
    assert loss.watched["accuracy"].float().mean() > 0.5, "chance is right one time in 21"
