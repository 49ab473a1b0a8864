"""The tree of a search: every candidate and its fate, against the probabilities of the model themselves."""

from __future__ import annotations

import json

import pytest
import torch

from lmlab.decoding.beam_search import beam_search
from lmlab.decoding.search_recorder import Recorder
from lmlab.pages.search_tree import SearchTree, as_document
from standins import Table

BOUNDARY = 1


def search(model: Table, *, beams: int, tokens: int, prompts: list[list[int]] | None = None, alpha: float = 0.0):
    recorder = Recorder()
    given = torch.tensor(prompts or [[BOUNDARY]])
    results = beam_search(
        model, given, tokens=tokens, beams=beams, boundary=BOUNDARY, length_penalty=alpha, watch=recorder
    )
    trees = [
        recorder.tree(
            found,
            text=i,
            show=lambda token: f"t{token}",
            decode=lambda tokens: " ".join(map(str, tokens)),
            boundary=BOUNDARY,
            beams=beams,
            length_penalty=alpha,
            prompt="p",
        )
        for i, found in enumerate(results)
    ]
    return trees, results


def text_of(tree: SearchTree, node: int | None) -> list[int]:
    if node is None:
        return []
    candidate = tree.candidates[node]
    return [*text_of(tree, candidate.parent), candidate.token]


@pytest.mark.parametrize("seed", range(5))
def test_each_candidate_has_its_probability_and_its_fate(seed):
    model, beams = Table(7, seed=seed), 3
    ((tree,), _) = search(model, beams=beams, tokens=6)
    assert [node.id for node in tree.candidates] == list(range(len(tree.candidates)))
    for node in tree.candidates:
        total = model.log_probability(text_of(tree, node.id), boundary=BOUNDARY)
        before = model.log_probability(text_of(tree, node.parent), boundary=BOUNDARY)
        assert node.total == pytest.approx(total, abs=1e-5)
        assert node.log_probability == pytest.approx(total - before, abs=1e-5)
        assert node.step == len(text_of(tree, node.id))
        assert node.ends == (node.token == BOUNDARY)
        assert node.piece == f"t{node.token}"
    alive: list[int | None] = [None]
    for step in range(1, tree.steps + 1):
        level = [node for node in tree.candidates if node.step == step]
        every = [
            ([*text_of(tree, parent), token], parent, token) for parent in alive for token in range(model.vocabulary)
        ]
        every.sort(key=lambda item: -model.log_probability(item[0], boundary=BOUNDARY))
        assert [(node.parent, node.token) for node in level] == [item[1:] for item in every[: 2 * beams]]
        assert [node.rank for node in level] == list(range(1, 2 * beams + 1))
        going = [node for node in level if node.token != BOUNDARY][:beams]
        for node in level:
            ended = node.token == BOUNDARY and node.rank <= beams
            assert node.fate == ("finished" if ended else "kept" if node in going else "pruned")
        alive = [node.id for node in going]


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_results_can_be_read_back_along_their_paths(alpha):
    ((tree,), (found,)) = search(Table(6, seed=2), beams=4, tokens=7, alpha=alpha)
    assert len(tree.results) == len(found) == 4
    for result, hypothesis in zip(tree.results, found, strict=True):
        assert result.tokens == hypothesis.tokens == [tree.candidates[node].token for node in result.path]
        assert result.score == hypothesis.score
        assert tree.candidates[result.path[-1]].total == pytest.approx(result.log_probability)
        assert tree.candidates[result.path[-1]].fate == ("finished" if result.finished else "kept")
        words = hypothesis.tokens[:-1] if hypothesis.finished else hypothesis.tokens
        assert result.text == " ".join(map(str, words))
    assert tree.best_path == tree.results[0].path


def test_texts_of_a_batch_have_trees_of_their_own():
    prompts = [[BOUNDARY, 3], [BOUNDARY, 5], [BOUNDARY, 0]]
    trees, _ = search(Table(6, seed=4), beams=3, tokens=8, prompts=prompts)
    for prompt, tree in zip(prompts, trees, strict=True):
        ((alone,), _) = search(Table(6, seed=4), beams=3, tokens=8, prompts=[prompt])
        assert [(n.parent, n.token, n.fate) for n in tree.candidates] == [
            (n.parent, n.token, n.fate) for n in alone.candidates
        ]
    assert len({len(tree.candidates) for tree in trees}) > 1


def test_it_is_json_with_every_field_that_is_promised():
    trees, _ = search(Table(5, seed=1), beams=2, tokens=3)
    document = json.loads(json.dumps(as_document(trees)))
    assert document["format"] == "lmlab-search"
    assert document["version"] == 1
    (tree,) = document["searches"]
    assert tree["prompt"] == "p"
    assert tree["source"] is None
    assert (tree["beams"], tree["steps"]) == (2, 3)
    fields = ["id", "parent", "step", "rank", "token", "piece", "ends", "log_probability", "total", "fate"]
    assert all(list(node) == fields for node in tree["candidates"])
    names = ["text", "tokens", "log_probability", "score", "finished", "path"]
    assert all(list(result) == names for result in tree["results"])
    assert tree["candidates"][0]["parent"] is None
