"""The engine gives the same bytes alone and in a batch, and what one `generate` after another would give."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from serving import settle

from lmlab.config import build
from lmlab.decoding.chain_rule import score_tokens
from lmlab.decoding.generate import generate
from lmlab.decoding.interpolation import InterpolatedModel
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.layers.kernels.linear import round_weights
from lmlab.layers.kernels.low_precision import check_precision
from lmlab.models import load_class
from lmlab.serve.engine.engine import Engine
from lmlab.serve.engine.sequence import GeneratedSequence, OutputPiece
from lmlab.serve.errors import ClosedError, OverloadedError
from lmlab.serve.server import share_threads
from patience import PATIENCE, wait_until
from tolerances import of_blocks

VOCABULARY = 61
SETTINGS: dict[str, dict[str, Any]] = {
    "ngram": {"order": 3},
    "lstm": {"width": 24, "hidden": 40, "layers": 2},
    "gru": {"width": 24, "hidden": 40, "layers": 1},
    "gpt2": {"width": 48, "heads": 4, "layers": 2, "window": 96, "dropout": 0.0},
    "transformer-xl": {"width": 48, "heads": 4, "layers": 2, "inner": 80, "memory": 40, "dropout": 0.0},
}
KINDS = [*SETTINGS, "mixture", "gpt2 int8", "gpt2 bf16"]


class Letters:
    """A tokenizer for tests: the letter of each token."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(ord("0") + token) for token in ids)

    def bytes_of(self, token: int) -> bytes | None:
        return None


def make(name: str) -> Any:
    if name == "mixture":
        return InterpolatedModel([make("ngram"), make("gpt2")])
    name, _, weights = name.partition(" ")
    cls = load_class(name)
    config = build(cls.Config, {"vocabulary": VOCABULARY, **SETTINGS[name]}, where="model")
    torch.manual_seed(1)
    if name == "ngram":
        stream = np.random.default_rng(0).zipf(1.3, 4000).clip(max=VOCABULARY) - 1
        return cls.fit(stream.astype(np.uint16), config=config)
    model = cls(config).eval()
    for parameter in model.parameters():  # predictions that differ from context to context
        parameter.data.mul_(3)
    if weights:
        round_weights(model, check_precision(weights))
    return model


class Asked(NamedTuple):
    prompt: list[int]
    tokens: int
    sampling: Sampling
    number: int = 0
    top: int | None = None
    prompt_top: int | None = None
    stop: tuple[str, ...] = ()


@contextmanager
def running(model: Any, **settings: Any) -> Iterator[Engine]:
    engine = Engine(model, writer=model, **settings)
    try:
        yield engine
    finally:
        engine.close()


def answer(engine: Engine, asked: Sequence[Asked], *, pause: random.Random | None = None) -> list[list[OutputPiece]]:
    """What comes of each request; with `pause`, they arrive one by one while others are being written."""
    reported: list[list[OutputPiece]] = [[] for _ in asked]
    left = threading.Semaphore(0)

    def listen(number: int) -> Any:
        def tell(piece: OutputPiece) -> None:
            reported[number].append(piece)
            if piece.finish:
                left.release()

        return tell

    for number, each in enumerate(asked):
        text = GeneratedSequence(
            prompt=each.prompt,
            tokens=each.tokens,
            sampling=each.sampling,
            sample=each.number,
            decoder=Letters(),
            send=listen(number),
            top=each.top,
            prompt_top=each.prompt_top,
            stop=each.stop,
        )
        engine.submit([text])
        if pause is not None and pause.random() < 0.3:
            time.sleep(0.002)
    for _ in asked:
        assert left.acquire(timeout=PATIENCE)
    return reported


def mixed(seed: int, count: int) -> list[Asked]:
    """Requests of every kind; many prompts begin alike."""
    dice = random.Random(seed)
    common = [dice.randrange(VOCABULARY) for _ in range(130)]
    found = []
    for number in range(count):
        own = [dice.randrange(VOCABULARY) for _ in range(dice.choice((1, 2, 5, 17, 63, 64, 65)))]
        prompt = [0, *common[: dice.choice((0, 0, 3, 64, 127))], *own]
        sampling = Sampling(
            temperature=dice.choice((0.0, 0.7, 1.0, 1.0)),
            top_k=dice.choice((None, None, 5)),
            top_p=dice.choice((None, 0.9)),
            repetition_penalty=dice.choice((1.0, 1.0, 1.3)),
            frequency_penalty=dice.choice((0.0, 0.0, 0.5)),
            logit_bias=dice.choice(({}, {3: 2.0})),
            seed=number,
        )
        found.append(Asked(prompt, dice.choice((1, 3, 8, 24)), sampling, dice.choice((0, 1)), dice.choice((None, 2))))
    return found


@pytest.mark.parametrize("name", KINDS)
def test_the_same_bytes_alone_and_in_a_batch(name: str) -> None:
    model, asked = make(name), mixed(5, 60 if name in ("ngram", "lstm", "gpt2", "transformer-xl") else 20)
    with running(model) as engine:
        alone = [answer(engine, [each])[0] for each in asked]
        shuffled = list(range(len(asked)))
        random.Random(1).shuffle(shuffled)
        together = answer(engine, [asked[number] for number in shuffled], pause=random.Random(2))
    with running(model) as engine:  # nothing known of any prefix, and all at once
        afresh = answer(engine, asked)
    for place, number in enumerate(shuffled):
        assert together[place] == alone[number]
    assert afresh == alone
    assert len({tuple(piece.token for piece in reported) for reported in alone}) > len(asked) / 2


@pytest.mark.parametrize("name", KINDS)
def test_texts_are_those_of_generate(name: str) -> None:
    """Another order of sums may differ in the last bits, so what is drawn is compared where it is far from the edge."""
    model = make(name)
    near = 1e-3 if name in (*SETTINGS, "mixture") else 0.1  # a last bit may round to another number of 8 bits
    greedy = [each._replace(sampling=Sampling(temperature=0.0), top=2) for each in mixed(8, 12)]
    with running(model, rows=5) as engine:
        reported = answer(engine, greedy)
    for each, pieces in zip(greedy, reported, strict=True):
        picker = Sampler(each.sampling)
        steps = generate(model, torch.tensor([each.prompt]), tokens=each.tokens, pick=picker, top=2)
        for (drawn,), piece in zip(steps, pieces, strict=True):
            assert piece.scored is not None
            assert drawn.nats == pytest.approx(piece.scored.nats, abs=near)
            if drawn.token != piece.token:
                (_, best), (_, second) = drawn.top
                assert second - best < near
                break


@pytest.mark.parametrize("name", KINDS)
def test_prompts_are_scored_as_score_does_it(name: str) -> None:
    model = make(name)
    asked = [each._replace(tokens=each.tokens % 4, prompt_top=3) for each in mixed(9, 12)]
    with running(model) as engine:
        reported = answer(engine, asked)
    expected = score_tokens(model, [each.prompt[1:] for each in asked], boundary=0)
    for each, pieces, nats in zip(asked, reported, expected, strict=True):
        scored = pieces[0].prompt
        assert scored is not None
        within = 10 * of_blocks(2, width=48, growth=8)  # of scores up to ten
        np.testing.assert_allclose([token.nats for token in scored], nats, atol=within)
        assert sum(token.nats for token in scored) == pytest.approx(nats.sum(), abs=1e-3)
        assert all(token.top[0][1] <= token.nats + 1e-9 for token in scored)
        assert len(pieces) == 1 + max(1, each.tokens)


def test_a_text_that_is_cancelled_leaves_at_the_next_step() -> None:
    with running(make("gpt2"), rows=4) as engine:
        texts, ended = [], threading.Semaphore(0)
        counts = [0] * 12

        def listen(number: int) -> Any:
            def tell(piece: OutputPiece) -> None:
                counts[number] += piece.token is not None
                if piece.finish:
                    ended.release()

            return tell

        for number in range(12):
            prompt = [0, *range(1, 40)]
            texts.append(
                GeneratedSequence(
                    prompt=prompt, tokens=10**6, sampling=Sampling(), decoder=Letters(), send=listen(number)
                )
            )
        engine.submit(texts)
        wait_until(lambda: min(counts[:4]) >= 3)
        for text in texts:
            text.cancel()
        for _ in texts:
            assert ended.acquire(timeout=PATIENCE)
        settle(engine)
        assert engine.load == 0
        assert engine.metrics.value("request_success_total", finished_reason="cancelled") == 12


def make_text(
    prompt: Sequence[int] = (0,), *, tokens: int = 1, send: Callable[[OutputPiece], None] = lambda piece: None
) -> GeneratedSequence:
    """A text of one token, by default, that nobody listens to."""
    return GeneratedSequence(prompt=prompt, tokens=tokens, sampling=Sampling(), decoder=Letters(), send=send)


def test_a_full_queue_refuses_all_or_none() -> None:
    with running(make("ngram"), rows=1, queue=3) as engine:
        block = threading.Event()
        job = engine.call(lambda pause: block.wait(PATIENCE))
        engine.submit([make_text(), make_text()])
        with pytest.raises(OverloadedError):
            engine.submit([make_text(), make_text()])
        with engine.reserve():
            with pytest.raises(OverloadedError):  # the last place is kept for another
                engine.submit([make_text()])
            engine.submit([make_text()], reserved=1)
        block.set()
        assert job.result(PATIENCE)


def test_an_engine_that_fails_without_a_word_is_an_error_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.excepthook", lambda reported: None)
    engine, reported = Engine(model := make("lstm"), writer=model), list[OutputPiece]()

    def broken() -> None:
        raise MemoryError

    monkeypatch.setattr(engine._batch, "_step", broken)
    engine.submit(
        [GeneratedSequence(prompt=[0], tokens=9, sampling=Sampling(), decoder=Letters(), send=reported.append)],
    )
    engine._thread.join(PATIENCE)
    assert reported[-1].finish == "error"
    assert "MemoryError" in reported[-1].error
    with pytest.raises(ClosedError, match="MemoryError"):
        engine.submit([])


def test_stop_strings_end_a_text_before_them() -> None:
    with running(make("ngram")) as engine:
        (plain,) = answer(engine, [Asked([0, 1], 30, Sampling(seed=4))])
        text = "".join(piece.text for piece in plain)
        stop = text[10:12]
        (cut,) = answer(engine, [Asked([0, 1], 30, Sampling(seed=4), stop=(stop,))])
    assert "".join(piece.text for piece in cut) == text[: text.index(stop)]
    assert cut[-1].finish == "stop"


def test_closing_ends_what_is_not_finished() -> None:
    reported: list[OutputPiece] = []
    engine = Engine(model := make("lstm"), writer=model)
    text = GeneratedSequence(prompt=[0], tokens=10**6, sampling=Sampling(), decoder=Letters(), send=reported.append)
    engine.submit([text])
    wait_until(lambda: reported)
    engine.close(within=0.05)
    engine._thread.join(PATIENCE)
    assert reported[-1].finish == "cancelled"
    assert not engine._thread.is_alive()


def test_an_error_of_one_text_ends_it_alone() -> None:
    class Broken(Sampler):
        def uniform(self) -> torch.Tensor:
            raise RuntimeError("broken")

    with running(make("lstm")) as engine:
        reported: list[OutputPiece] = []
        text = GeneratedSequence(prompt=[0], tokens=2, sampling=Sampling(), decoder=Letters(), send=reported.append)
        text.sampler = Broken()
        engine.submit([text])
        (other,) = answer(engine, [Asked([0, 1], 3, Sampling(seed=4))])
        assert [piece.token is not None for piece in other].count(True) == 3
        assert reported[-1].finish == "error"
        assert "unexpected RuntimeError" in reported[-1].error


def test_scores_that_are_no_numbers_end_their_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of a batch is NaN from the third token on; the other text is the same to the bit."""
    asked = [Asked([0, 1], 8, Sampling(seed=4), top=2), Asked([0, 2], 8, Sampling(seed=5), top=2)]
    with running(make("lstm")) as engine:
        alone, whole = (answer(engine, [each])[0] for each in asked)
        write = engine._batch._add_tokens

        def spoil(texts: Sequence[GeneratedSequence], logits: torch.Tensor) -> None:
            rows = [number for number, text in enumerate(texts) if text.prompt == [0, 2] and text.written >= 2]
            write(texts, logits.index_fill(0, torch.tensor(rows, dtype=torch.long), float("nan")))

        monkeypatch.setattr(engine._batch, "_add_tokens", spoil)
        first, second = answer(engine, asked)
        assert first == alone
        assert second[:2] == whole[:2]
        assert (len(second), second[2].finish, second[2].token) == (3, "error", None)
        assert "not numbers" in second[2].error


@pytest.mark.parametrize("name", ["gpt2", "lstm"])
def test_the_share_of_the_room_in_use(name: str) -> None:
    """Of a model with a window, tokens of rows times window; of one whose state does not grow, rows."""
    fractions: list[tuple[int, float]] = []
    with running(make(name), rows=4) as engine:

        def tell(piece: OutputPiece) -> None:
            fractions.append((text.written, engine.metrics.value("kv_cache_usage_perc")))

        text = GeneratedSequence(prompt=[0] * 10, tokens=30, sampling=Sampling(), decoder=Letters(), send=tell)
        engine.submit([text])
        wait_until(lambda: text.finish)
        settle(engine)
        assert engine.metrics.value("kv_cache_usage_perc") == 0
    for written, fraction in fractions[1:]:  # when the first token is sent, the text has not joined the batch
        held = 10 + written - 1 if name == "gpt2" else 96
        assert fraction == pytest.approx(held / 96 / 4)


def test_the_prefix_cache_is_bounded_counted_and_can_be_off() -> None:
    prompt = [0, *range(1, 61), *range(1, 61), 7]  # 122 tokens: a window of 96 reads the last, in pieces of 64

    def count(prefix_bytes: int) -> tuple[list[OutputPiece], float, float, float]:
        with running(make("lstm"), prefix_bytes=prefix_bytes) as engine:
            reported = [answer(engine, [Asked(prompt, 4, Sampling(seed=1))])[0] for _ in range(3)]
            assert reported[0] == reported[1] == reported[2]
            values = (engine.metrics.value(f"prefix_cache_{name}") for name in ("queries_total", "hits_total", "bytes"))
            return reported[0], *values  # type: ignore[return-value]

    reported, queries, hits, size = count(2**20)
    assert (queries, hits) == (3 * len(prompt), 2 * len(prompt))
    assert 0 < size <= 2**20
    assert count(0) == (reported, 0, 0, 0)
    assert count(64) == (reported, 3 * len(prompt), 0, 0), "nothing fits"


def test_an_error_of_a_step_is_none_of_a_job_that_lets_it_run(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model := make("lstm"), writer=model)
    monkeypatch.setattr("threading.excepthook", lambda reported: None)

    def broken() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(engine, "_iterate", broken)
    with pytest.raises(ClosedError, match="RuntimeError"):
        engine.call(lambda pause: pause()).result(PATIENCE)
    engine._thread.join(PATIENCE)
    with pytest.raises(ClosedError, match="RuntimeError"):
        engine.call(lambda pause: None)


def test_a_cancelled_request_gives_its_place_to_others() -> None:
    with running(make("ngram"), rows=1, queue=2) as engine:
        block = threading.Event()
        job = engine.call(lambda pause: block.wait(PATIENCE))
        reported: list[OutputPiece] = []
        make_text = lambda: GeneratedSequence(  # noqa: E731
            prompt=[0], tokens=1, sampling=Sampling(), decoder=Letters(), send=reported.append
        )
        first = [make_text(), make_text()]
        engine.submit(first)
        for text in first:
            text.cancel()
        engine.submit([make_text(), make_text()])
        assert [piece.finish for piece in reported] == ["cancelled", "cancelled"]
        block.set()
        assert job.result(PATIENCE)


def test_a_place_is_kept_while_texts_are_made() -> None:
    with running(make("ngram"), rows=1, queue=2) as engine:
        block = threading.Event()
        job = engine.call(lambda pause: block.wait(PATIENCE))
        with engine.reserve(), engine.reserve():
            assert engine.is_full
            with pytest.raises(OverloadedError), engine.reserve():
                pass
            engine.submit([text := make_text()], reserved=1)
        assert not engine.is_full
        engine.submit([make_text()])
        assert engine.is_full
        text.cancel()
        assert not engine.is_full
        block.set()
        assert job.result(PATIENCE)


def test_an_engine_computes_with_its_share_of_the_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        threads = share_threads(2)
        assert (threads, torch.get_num_threads()) == (2, 1)
        assert share_threads(3) == 1, "one at least"
        engine = Engine(make("ngram"), threads=threads)
        try:
            assert engine.call(lambda pause: torch.get_num_threads()).result(PATIENCE) == threads
        finally:
            engine.close()
    finally:
        torch.set_num_threads(before)
