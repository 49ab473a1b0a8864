"""Splits of labelled examples, and their checks before training."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmlab.data.corpora import checking
from lmlab.data.corpora.checking import Check, remove_leaks, remove_trained
from lmlab.data.corpora.example_splits import complete_splits, split_examples
from lmlab.data.readers.examples import Answer, Example, Labelled
from lmlab.data.readers.labelled import read_labelled
from lmlab.tasks import load_task
from lmlab.tokenizers import train


def check(labelled: Labelled, **options: Any) -> Check:
    """What is found of examples, with the words of their task."""
    task = load_task(labelled.task)
    wording: dict[str, Any] = {"labels": task.summarise_labels(labelled), "if_too_long": task.wording.too_long}
    return checking.check(labelled, **wording, **options)


def reviews(number: int, fraction: float = 0.3) -> list[Example]:
    return [Example(f"review {n}", label="pos" if n < fraction * number else "neg") for n in range(number)]


def test_a_split_has_its_share_of_each_class() -> None:
    split = split_examples(reviews(1000))
    assert [len(part) for part in split] == [800, 100, 100]
    assert [Counter(one.label for one in part) for part in split] == [
        {"pos": 240, "neg": 560},
        {"pos": 30, "neg": 70},
        {"pos": 30, "neg": 70},
    ]


def test_a_split_depends_on_the_texts_and_the_seed_alone() -> None:
    examples = reviews(200)
    split = split_examples(examples)
    assert split == split_examples(examples)
    assert set(split_examples(examples[::-1]).test) == set(split.test)
    assert set(split_examples(examples, seed=1).test) != set(split.test)
    assert split.train == [one for one in examples if one in set(split.train)]  # in the order of the file


words = st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.sampled_from(["x", "y", "z"])), min_size=1, max_size=40)


@given(words, st.integers(0, 3), st.booleans())
def test_nothing_is_lost_torn_apart_or_unknown(given_rows: list[tuple[str, str]], seed: int, stratify: bool) -> None:
    examples = [Example(text, label=label, line=n) for n, (text, label) in enumerate(given_rows)]
    if len({one.a for one in examples}) < 3:
        with pytest.raises(ValueError, match="too few to split"):
            split_examples(examples, seed=seed, stratify=stratify)
        return
    split = split_examples(examples, seed=seed, stratify=stratify)
    assert sorted([*split.train, *split.valid, *split.test]) == sorted(examples)
    texts = [{one.a for one in part} for part in split]
    assert not texts[0] & texts[1]
    assert not texts[0] & texts[2]
    assert not texts[1] & texts[2]
    if stratify:
        assert {one.label for one in split.train} == {one.label for one in examples}


def test_every_part_that_was_asked_for_gets_something() -> None:
    for number in range(6, 30):
        assert all(split_examples(reviews(number, 0.5)))
    halves = split_examples(reviews(100), fractions=(0.5, 0.5))
    assert (len(halves.train), len(halves.valid), halves.test) == (50, 50, [])
    with pytest.raises(ValueError, match="sum to 1"):
        split_examples(reviews(100), fractions=(0.5, 0.2))


def test_a_file_without_empty_lines_is_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"x.conll is one sentence of 500 words \(an empty line ends a sentence\)"):
        split_examples([Example(("w",) * 500, label=("O",) * 500, source="x.conll", line=1)])
    with pytest.raises(ValueError, match="one text is too few to split"):
        split_examples([Example("a text", label="pos")])


def test_questions_of_one_context_stay_together() -> None:
    examples = [Example(f"q {n}", f"context {n // 5}", label=(Answer("c", 0),)) for n in range(500)]
    split = split_examples(examples)
    assert [len(part) for part in split] == [400, 50, 50]
    assert not {one.b for one in split.train} & {one.b for one in (*split.valid, *split.test)}


def test_what_is_missing_is_made_up_of_train() -> None:
    labelled = Labelled(task="classification", train=reviews(100))
    whole = complete_splits(labelled)
    assert whole.valid is not None
    assert whole.test is not None
    assert [len(whole.train), len(whole.valid), len(whole.test)] == [80, 10, 10]
    held_out = [Example("other", label="pos")]
    given_valid = Labelled(task="classification", train=reviews(90), valid=held_out)
    assert complete_splits(given_valid) == given_valid  # valid chooses; no test is made up
    given_test = complete_splits(Labelled(task="classification", train=reviews(90), test=held_out))
    assert given_test.valid is not None
    assert (len(given_test.train), len(given_test.valid), given_test.test) == (80, 10, held_out)


def test_leaks_are_moved_out_of_what_is_held_out() -> None:
    train_set = [
        Example("a b", label="x"),
        Example("a  b", label="y"),
        Example("c", label="x"),
        Example("c", label="x"),
    ]
    valid = [Example("c", label="x"), Example("d", label="y")]
    test = [Example("d", label="x"), Example("a b", label="x"), Example("e", label="y")]
    labelled = Labelled(task="classification", train=train_set, valid=valid, test=test, format="TSV")
    clean, counts = remove_leaks(labelled)
    assert counts == {"valid": 1, "test": 2}
    assert clean.valid is not None
    assert clean.test is not None
    assert [one.a for one in (*clean.valid, *clean.test)] == ["d", "e"]
    assert clean.train == train_set
    found = check(labelled)
    assert found.duplicates == {"train": 2, "valid": 0, "test": 0}
    assert found.leaks == counts
    assert (found.noisy, found.labels) == (1, {"x": 3, "y": 1})
    said = found.lines()
    assert "examples: train 4, valid 2, test 3" in said, "what is given to be scored is scored"
    assert "duplicates: 2 within train" in said
    assert "label noise: 1 text with two labels, as x and y: a b" in said
    assert any(line.startswith("leaks: 1 of 2 examples of valid also occur in train") for line in said)
    assert any(line.startswith("leaks: 2 of 3 examples of test also occur in train or valid") for line in said)
    fewer, removed = remove_trained(labelled)
    assert ([one.a for one in fewer.train], removed) == ([], {"train": 4, "valid": 1})
    assert (fewer.valid, fewer.test) == (valid[:1], test), "test stays as it is, valid loses what is in test"
    assert not any(check(fewer).leaks.values()), "what the message advises removes every leak"
    assert remove_leaks(clean) == (clean, {"valid": 0, "test": 0})
    pair = Labelled(task="classification", train=[Example("a", "b", label="x")], valid=[Example("a", "c", label="x")])
    assert remove_leaks(pair)[1] == {"valid": 0}
    nothing, _ = remove_leaks(Labelled(task="classification", train=train_set, valid=valid[:1]))
    assert nothing.valid is None


def test_it_is_reported_where_nothing_is_left() -> None:
    train_set = [Example("a b", label="x"), Example("c", label="y")]
    emptied = Labelled(task="classification", train=train_set, valid=train_set, format="TSV")
    found = check(emptied)
    assert found.examples == {"train": 2, "valid": 2}
    assert "leaks: all 2 examples of valid occur in train, too: a score says nothing" in found.lines()
    with pytest.raises(ValueError, match=r"all 2 examples of valid occur in train, too.* leave them out"):
        found.require_held_out()
    check(Labelled(task="classification", train=train_set, valid=[Example("d", label="x")])).require_held_out()


def test_a_clean_set_is_reported_in_few_lines() -> None:
    found = check(Labelled(task="classification", train=reviews(100), format="TSV with a header"))
    assert found.lines() == ["classification: TSV with a header", "examples: train 100", "2 classes: neg 70%, pos 30%"]


def test_lengths_and_words_that_cannot_be_read() -> None:
    tokenizer = train("words", ["a b c"])
    examples = [Example("a b c", label="x"), Example("a zebra b a a", label="y"), Example("c", label="y")]
    labelled = Labelled(task="classification", train=examples, format="TSV")
    found = check(labelled, tokenizer=tokenizer, frame_overhead=2, window=5)
    assert (found.looked_at, found.longest, found.too_long) == (3, 7, 1)
    assert (found.words, found.unreadable, found.unreadable_words) == (9, 1, ("zebra",))
    assert (
        "lengths: 1 examples (33%) are longer than the window of 5 tokens and are cut; the longest has 7"
        in found.lines()
    )
    assert "words that the tokenizer cannot read: 11%, as zebra" in found.lines()
    asked = Labelled(task="spans", train=[Example("a ?", "a b c a b", label=())], format="SQuAD 2.0")
    assert any("overlapping windows" in line for line in check(asked, tokenizer=tokenizer, window=5).lines())
    chosen = Labelled(task="choice", train=[Example("a", choices=("b", "b c a"), label=1)])
    assert check(chosen, tokenizer=tokenizer, frame_overhead=3).longest == 7  # one choice at a time
    tagged = Labelled(task="tagging", train=[Example(("a", "b"), label=("B-X", "O"))], scheme="IOB2")
    assert check(tagged, tokenizer=tokenizer).lines()[2] == "1 kind of spans, 1 in all: X 100%"
    assert check(labelled, tokenizer=train("bytes", [""])).unreadable == 0


def test_many_examples_are_sampled() -> None:
    found = check(Labelled(task="classification", train=reviews(12000)), tokenizer=train("bytes", [""]), window=512)
    assert found.looked_at == 5000
    assert found.lines()[-1] == "lengths: the longest has 12 tokens, the window 512 (of 5,000 that were looked at)"


def test_everything_can_be_written_as_json(shared_data: Callable[[str], Path]) -> None:
    for name in ("glue/STS-B", "squad", "conll2003"):
        labelled = read_labelled(shared_data(name.split("/")[0]) / name.partition("/")[2])
        found = check(labelled, tokenizer=train("bytes", [""]), window=128)
        assert len(found.lines()) <= 8
        assert json.loads(json.dumps(found.as_dict()))["examples"]["train"] == len(labelled.train)
