"""word2vec: the loss pair by pair, what is drawn and left out, and vectors that find the words of a toy language."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lmlab.analysis.neighbours import neighbours
from lmlab.cli.convert import convert
from lmlab.interop.word_vector_runs import export_vectors, import_vectors, vectors_of
from lmlab.language_model import load
from lmlab.layers.kernels.negative_sampling import negative_sampling
from lmlab.models import create
from lmlab.objectives.negative_sampling import NegativeSampling, NegativeSamplingConfig, pair_losses
from lmlab.runs.recipe import make_recipe
from lmlab.runs.run import resume, start
from lmlab.tokenizers.word_vectors import read_word_vectors

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


def make(width: int = 4, vocabulary: int = 12) -> Any:
    torch.manual_seed(0)
    model: Any = create("word2vec", {"vocabulary": vocabulary, "width": width}).double()
    torch.nn.init.normal_(model.embedding.weight)
    torch.nn.init.normal_(model.neighbours.weight)
    return model


def opened(tokens: np.ndarray, **settings: Any) -> NegativeSampling:
    objective = NegativeSampling(NegativeSamplingConfig(**settings))
    objective.loader(SimpleNamespace(tokens=tokens), batch=2, window=9, seed=0, streams=False)  # type: ignore[arg-type]
    return objective


def drawn_in(batch: Any) -> np.ndarray:
    """The words [B, K] that are no neighbours: they come after those of the text."""
    found: np.ndarray = batch.labels["others"][batch.labels["other"][:, batch.inputs["tokens"].shape[1] :]].numpy()
    return found


def pairs_of(reach: list[list[int]], lengths: list[int]) -> list[tuple[int, int, int]]:
    """(row, centre, neighbour), one after another."""
    return [
        (row, c, o)
        for row, length in enumerate(lengths)
        for c in range(length)
        for o in range(max(0, c - reach[row][c]), min(length, c + reach[row][c] + 1))
        if o != c
    ]


@pytest.mark.parametrize("variant", ["skip-gram", "cbow"])
def test_the_loss_is_that_of_the_paper_pair_by_pair(variant: str) -> None:
    model = make()
    tokens = np.random.default_rng(0).integers(0, 12, 500)
    objective = opened(tokens, variant=variant, context=3, negatives=5, drawn=7, subsample=0.05)
    raw = torch.from_numpy(tokens[:40].reshape(4, 10))
    batch = objective.batch(raw, np.random.default_rng(1))
    loss = objective.loss(model, {}, batch)
    words, reach = batch.inputs["tokens"].tolist(), batch.labels["reach"].tolist()
    lengths, negatives = batch.inputs["lengths"].tolist(), drawn_in(batch).tolist()
    v, u = model.embedding.weight.detach().numpy(), model.neighbours.weight.detach().numpy()
    pairs = pairs_of(reach, lengths)

    def log_sigmoid(x: float) -> float:
        return -math.log1p(math.exp(-x))

    total, count = 0.0, 0
    if variant == "skip-gram":
        for row, c, o in pairs:
            centre = v[words[row][c]]
            wrong = np.mean([log_sigmoid(-float(centre @ u[k])) for k in negatives[row]])
            total -= log_sigmoid(float(centre @ u[words[row][o]])) + 5 * wrong
            count += 1
    else:
        for row, c in sorted({(row, c) for row, c, _ in pairs}):
            h = np.mean([v[words[row][o]] for r, centre, o in pairs if (r, centre) == (row, c)], axis=0)
            wrong = np.mean([log_sigmoid(-float(h @ u[k])) for k in negatives[row]])
            total -= log_sigmoid(float(h @ u[words[row][c]])) + 5 * wrong
            count += 1
    assert batch.counts == {"pairs": count}
    assert float(loss.sums["pairs"].detach()) == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("cbow", [False, True])
def test_the_gradients_worked_out_by_hand_are_those_of_autograd(cbow: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    centres, others = (torch.randn(n, 5, dtype=torch.float64, generator=generator) for n in (6, 9))
    centre, other = (torch.randint(n, (3, t), generator=generator) for n, t in ((6, 7), (9, 7 + 4)))
    near = (torch.rand(3, 7, 7, generator=generator) < 0.4).double()
    near[0, 2] = 0  # a word without neighbours
    found = []
    for add in (pair_losses, negative_sampling):
        tables = [centres.clone().requires_grad_(), others.clone().requires_grad_()]
        loss = add(tables[0], tables[1], centre, other, near.clone(), weight=0.7, cbow=cbow)
        found.append([loss, *torch.autograd.grad(3 * loss, tables)])
    for readable, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, readable)


def test_the_gradient_of_looked_up_rows_is_sparse_in_any_order() -> None:
    model = make()
    for rows in ([1, 4, 7], [7, 1, 7]):
        model.embedding.weight.grad = None
        model.as_centres(torch.tensor(rows)).sum().backward()
        gradient = model.embedding.weight.grad
        assert gradient is not None
        assert gradient.is_sparse
        expected = torch.bincount(torch.tensor(rows), minlength=len(gradient)).to(gradient.dtype)
        torch.testing.assert_close(gradient.to_dense()[:, 0], expected)


def test_frequent_words_are_left_out_and_negatives_follow_the_power() -> None:
    """P(kept) = √(t / f); draws go with f to the power 3/4."""
    generator = np.random.default_rng(0)
    fractions = np.array([0.5, 0.25, 0.15, 0.1])
    tokens = generator.choice(4, 60_000, p=fractions)
    objective = opened(tokens, subsample=0.05, drawn=500)
    batch = objective.batch(torch.from_numpy(tokens.reshape(60, 1000)), generator)
    kept = np.concatenate(
        [row[:n] for row, n in zip(batch.inputs["tokens"].numpy(), batch.inputs["lengths"].tolist(), strict=True)]
    )
    found = np.bincount(kept, minlength=4) / np.bincount(tokens, minlength=4)
    assert found == pytest.approx(np.sqrt(0.05 / fractions), abs=0.02)
    drawn = np.bincount(drawn_in(batch).ravel(), minlength=4) / 30_000
    assert drawn == pytest.approx(fractions**0.75 / (fractions**0.75).sum(), abs=0.015)


def test_words_that_the_counted_text_lacks_are_left_out() -> None:
    """Validation may have words with numbers past those of the training text."""
    objective = opened(np.array([1, 2, 4] * 20), subsample=0)
    batch = objective.batch(torch.tensor([[1, 7, 2, 3, 4, 9, 1], [8, 8, 8, 8, 8, 8, 8]]))
    assert batch.inputs["lengths"].tolist() == [3, 0]
    assert batch.inputs["tokens"][0].tolist() == [1, 2, 4]
    assert set(drawn_in(batch).ravel()) <= {1, 2, 4}


def test_unknown_words_and_line_ends_are_no_words() -> None:
    tokenizer: Any = SimpleNamespace(boundary=1, unknown=0)
    objective = NegativeSampling(NegativeSamplingConfig(subsample=0), tokenizer)
    tokens = np.tile([0, 2, 3, 1], 50)
    objective.loader(SimpleNamespace(tokens=tokens), batch=2, window=9, seed=0, streams=False)  # type: ignore[arg-type]
    batch = objective.batch(torch.from_numpy(tokens[:18].reshape(2, 9)))
    for row, length in zip(batch.inputs["tokens"].tolist(), batch.inputs["lengths"].tolist(), strict=True):
        assert set(row[:length]) <= {2, 3}
    assert set(drawn_in(batch).ravel()) <= {2, 3}
    with pytest.raises(ValueError, match="no known word"):
        NegativeSampling(NegativeSamplingConfig(), tokenizer).loader(
            SimpleNamespace(tokens=np.zeros(9, int)),  # type: ignore[arg-type]
            batch=1,
            window=3,
            seed=0,
            streams=False,
        )


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Animals stand beside animals' words, and cars beside those of cars."""
    path = tmp_path_factory.mktemp("w2v") / "text.txt"
    generator = np.random.default_rng(0)
    topics = (["cat", "dog", "paw", "fur", "tail", "purr"], ["car", "road", "wheel", "motor", "brake", "fuel"])
    lines = [" ".join(generator.choice(topics[n % 2], 8)) for n in range(1500)]
    path.write_text("\n".join(lines))
    return path


def recipe(text: Path, **settings: Any) -> Any:
    return make_recipe(
        {
            "data": {"text": str(text)},
            "model": {"kind": "word2vec", "size": "tiny", "width": 16},
            "objective": {"subsample": 0, "context": 2, **settings},
            "train": {"budget": "60steps", "batch": 16, "window": 32, "evaluations": 2},
        }
    )


@pytest.mark.parametrize("variant", ["skip-gram", "cbow"])
def test_words_of_a_topic_are_neighbours(variant: str, text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(recipe(text, variant=variant), run)
    found = vectors_of(run)
    for word in ("cat", "motor"):
        topic = (
            {"cat", "dog", "paw", "fur", "tail", "purr"} if word == "cat" else {"car", "road", "wheel", "brake", "fuel"}
        )
        assert {each.word for each in neighbours(found, None, word, top=5)} <= topic | {word}
    lm = load(run)
    assert lm.embed(["cat dog"], pool="mean").shape == (1, 16)
    with pytest.raises(ValueError, match="cannot continue plain text"):
        lm.generate("cat")


def test_an_interrupted_run_resumes_to_the_bit(text: Path, tmp_path: Path) -> None:
    start(recipe(text), tmp_path / "whole")
    polls = iter(range(1000))
    start(recipe(text), tmp_path / "cut", interrupted=lambda: next(polls) >= 20)
    resume(tmp_path / "cut")
    for name in ("model.safetensors", "last/training.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


def test_vectors_go_out_and_come_in_again(text: Path, tmp_path: Path) -> None:
    start(recipe(text), tmp_path / "run")
    convert(tmp_path / "run", tmp_path / "vectors.txt")
    first, *_ = (tmp_path / "vectors.txt").read_text().splitlines()
    assert first == "12 16"
    convert(tmp_path / "vectors.txt", tmp_path / "again")
    found, own = vectors_of(tmp_path / "again"), vectors_of(tmp_path / "run")
    for word in ("cat", "fuel"):
        assert np.array_equal(found.vectors[found.numbers[word]], own.vectors[own.numbers[word]])
    mean = read_word_vectors(tmp_path / "vectors.txt").vectors.mean(0)
    np.testing.assert_allclose(found.vectors[found.numbers["<unk>"]], mean, rtol=1e-6)
    convert(tmp_path / "again", tmp_path / "glove.txt", to="glove")
    assert len((tmp_path / "glove.txt").read_text().splitlines()) == 12
    with pytest.raises(ValueError, match="exists already"):
        export_vectors(tmp_path / "run", tmp_path / "glove.txt")


def test_bad_files_get_one_line_and_leave_nothing(tmp_path: Path) -> None:
    for content, said in (("a 1 2\nb 1\n", "line 2"), ("a 1 2\na 3 4\n", "'a' twice"), ("", "empty")):
        (tmp_path / "vectors.txt").write_text(content)
        with pytest.raises(ValueError, match=said):
            import_vectors(tmp_path / "vectors.txt", tmp_path / "run")
        assert not (tmp_path / "run").exists()
