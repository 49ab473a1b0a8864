"""Tasks by prompting: likelihoods against the chain rule, examples as they were drawn, and the command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmlab.decoding.chain_rule import windows
from lmlab.decoding.scorer import ChainRule
from lmlab.language_model import LanguageModel, load
from lmlab.metrics.statistics import wilson
from lmlab.models import create, load_class
from lmlab.prompting import BUILTIN, ask, find_template, read_items
from lmlab.prompting.asking import continuation_nats, sample_examples
from lmlab.prompting.fitting import tokens_seen
from lmlab.prompting.items import PromptItem, PromptItems
from lmlab.prompting.templates import Template
from lmlab.tokenizers import train
from standins import write_run

GOOD, BAD = ("good", "nice", "fine", "great"), ("bad", "sad", "poor", "awful")


def line(word: str, label: str) -> str:
    return f"Review: a {word} film\nSentiment: {label}\n\n"


@pytest.fixture(scope="module")
def critic() -> LanguageModel:
    """An n-gram that has seen how sentiment goes with words; negative reviews are the more frequent ones."""
    text = "".join(line(word, "positive") for word in GOOD) + "".join(line(word, "negative") for word in BAD * 5)
    tokenizer = train("bpe:300", [text * 20])
    cls = load_class("ngram")
    config = cls.Config(vocabulary=tokenizer.vocabulary, order=12, boundary=tokenizer.boundary)
    stream = np.array([tokenizer.boundary, *tokenizer.encode(text * 20), tokenizer.boundary])
    return LanguageModel(model=cls.fit(stream, config=config), tokenizer=tokenizer)


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    rows = [f"a {word} film\tpos" for word in GOOD] + [f"a {word} film\tneg" for word in BAD]
    path = tmp_path / "reviews.tsv"
    path.write_text("text\tlabel\n" + "\n".join(rows * 3) + "\n")
    return path


def test_classes_are_distinguished_by_likelihood(critic: LanguageModel, reviews: Path) -> None:
    template = find_template("sentiment")
    items = read_items(template, reviews)
    asked = ask(critic, template, items, shots=[0, 2])
    assert asked.items == len(items.asked)
    for answers in asked.answers:
        assert answers.scores["accuracy"].value == 1.0
        assert answers.scores["by sum"].low is not None
    assert asked.majority.value == pytest.approx(0.5, abs=0.01)


def test_likelihoods_are_those_of_the_chain_rule(critic: LanguageModel) -> None:
    rule = ChainRule(critic.writer.model, critic.frame)
    pairs = [("Review: a good film\nSentiment:", " positive"), ("Sentiment:", " negative"), ("a", "")]
    for (prompt, answer), (nats, count) in zip(pairs, continuation_nats(critic, rule, pairs), strict=True):
        whole, before = critic.score(prompt + answer), critic.score(prompt)
        assert nats == pytest.approx(whole.nats - before.nats, abs=1e-4)
        assert count == whole.tokens - before.tokens


def with_examples(template: Template, item: PromptItem, pool: Sequence[PromptItem], **drawn: Any) -> str:
    """The whole prompt of an item, as it is asked."""
    return template.separator.join(sample_examples(template, item, pool, **drawn))


def test_examples_are_drawn_by_the_seed_and_are_never_the_item_itself(reviews: Path) -> None:
    template = find_template("sentiment")
    items = read_items(template, reviews)
    pool = items.pool[:8]
    for number, item in enumerate(pool):
        prompts = [with_examples(template, item, pool, shots=k, seed=[0, number]) for k in (0, 1, 4, 7)]
        for few, more in pairwise(prompts):
            assert more.endswith(few)
        assert prompts[-1].count("Sentiment:") == 8
        assert prompts[-1].count(template.asks(item.fields)) == 1
        assert prompts[2] == with_examples(template, item, pool, shots=4, seed=[0, number])
    others = {with_examples(template, pool[0], pool, shots=3, seed=[seed, 0]) for seed in range(5)}
    assert len(others) > 1


def test_an_example_is_never_the_item_itself_by_content(critic: LanguageModel, reviews: Path, tmp_path: Path) -> None:
    """The reviews hold each text three times, and the test file all of them again, with other white space."""
    template = find_template("sentiment")
    test = tmp_path / "test.tsv"
    test.write_text(reviews.read_text().replace(" film", "  film "))
    for given in (None, reviews, test):
        items = read_items(template, reviews, test=given)
        for number, item in enumerate(items.asked):
            *shown, _ = sample_examples(template, item, items.pool, shots=21, seed=[0, number])
            own = " ".join(item.fields["a"].split())
            assert len(shown) == 21
            assert not any(own in " ".join(each.split()) for each in shown)
        asked = ask(critic, template, items, shots=[2])
        assert asked.repeated == len(items.pool), "each is an item to answer, elsewhere or twice"
        with pytest.raises(ValueError, match=r"shots = 22: there are 24 examples .* without the item itself 21"):
            ask(critic, template, items, shots=[22])
    apart = tmp_path / "apart.tsv"
    apart.write_text("text\tlabel\na new film\tpos\nan old film\tneg\n")
    assert ask(critic, template, read_items(template, reviews, test=apart), shots=[2]).repeated == 0


def test_words_are_written_after_examples(tmp_path: Path) -> None:
    text = "cat = Katze\ndog = Hund\nhouse = Haus\n" * 40
    (tmp_path / "run").mkdir()
    lm = load(write_run(tmp_path / "run", "ngram", spec="bpe:280", text=text))
    (tmp_path / "pairs.tsv").write_text("cat\tKatze\ndog\tHund\nhouse\tHaus\n")
    template = find_template("translation")
    asked = ask(lm, template, read_items(template, tmp_path / "pairs.tsv"), shots=[0, 2])
    for answers in asked.answers:
        assert answers.scores["exact_match"].value == 1.0
        assert all(isinstance(each, str) and "\n" not in each for each in answers.predicted)
    assert asked.answers[1].prompt.count(" =") == 3


def test_questions_about_one_context_are_resampled_together(tmp_path: Path) -> None:
    """Ten answers of each of six paragraphs, alike within a paragraph: the interval is that of six, not of sixty."""
    (tmp_path / "run").mkdir()
    lm = load(write_run(tmp_path / "run", "ngram", spec="bpe:280", text="a = b\n" * 40))
    template = find_template("question").model_copy(update={"tokens": 1})
    asked = [
        PromptItem(
            {"a": f"q{number}?", "b": f"paragraph {number // 10}"}, (), ("",) if number < 30 else ("never said",)
        )
        for number in range(60)
    ]
    together = ask(lm, template, PromptItems(asked, asked), shots=[0]).answers[0].scores["exact_match"]
    alone = [each._replace(fields={**each.fields, "b": f"{each.fields['b']} {each.fields['a']}"}) for each in asked]
    apart = ask(lm, template, PromptItems(alone, alone), shots=[0]).answers[0].scores["exact_match"]
    assert together.value == apart.value == 0.5
    assert apart == wilson(30, 60)
    assert together.high - together.low > 2 * (apart.high - apart.low)


def test_items_are_made_from_text(tmp_path: Path) -> None:
    words = [
        first + second for first in ("alpha", "bravo", "delta", "hotel") for second in ("", "s", "er", "ed", "ing")
    ]
    sentences = [" ".join(words[(n * k) % 20] for k in range(1, 34)) + "." for n in range(1, 12)]
    (tmp_path / "book.txt").write_text("\n\n".join(sentences))
    last = read_items(find_template("last-word"), tmp_path / "book.txt").asked
    assert len(last) == len(sentences)
    for item, sentence in zip(last, sentences, strict=True):
        assert f"{item.fields['a']} {item.answer[0]}." == sentence
    clozes = read_items(find_template("cloze"), tmp_path / "book.txt", seed=3).asked
    assert len(clozes) == len(sentences)
    for item, sentence in zip(clozes, sentences, strict=True):
        assert len(set(item.candidates)) == 5
        assert f"{item.fields['a']} {item.candidates[item.answer]}" == sentence


def test_real_last_words(shared_data: Callable[[str], Path]) -> None:
    items = read_items(find_template("last-word"), shared_data("lambada") / "lambada_test.jsonl")
    assert len(items.asked) > 5000
    assert items.asked[0].answer == ("signs",)


@pytest.mark.parametrize("name", BUILTIN)
def test_built_in_templates_are_good(name: str) -> None:
    template = find_template(name)
    assert template.answers("x").startswith(" ")
    assert template.asks({"a": "A", "b": "B"})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('kind = "choose"\nprompt = "{c}"', r"\{c\} is not known"),
        ('kind = "guess"\nprompt = "{a}"', "kind"),
        ('kind = "choose"\npromt = "{a}"', "prompt"),
        ('kind = "choose"\nprompt = "{a}"\nanswer = "x"', "must contain"),
        ('kind = "choose"\nprompt = "{a}"\nreads = "text"', "makes"),
        ('kind = "choose"\nprompt = "{a"', "brace"),
    ],
)
def test_bad_templates_are_explained(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "mine.toml").write_text(content)
    with pytest.raises(ValueError, match=says):
        find_template(str(tmp_path / "mine.toml"))


def test_too_many_shots_and_unknown_tasks(critic: LanguageModel, reviews: Path) -> None:
    template = find_template("sentiment")
    items = read_items(template, reviews)
    with pytest.raises(ValueError, match="there are 8 examples"):
        ask(critic, template, PromptItems(items.asked, items.pool[:8]), shots=[8])
    with pytest.raises(ValueError, match="sentiment"):
        find_template("sentimnet")


def test_a_model_that_predicts_no_next_token_is_refused(reviews: Path) -> None:
    from toy_tasks import toy_model, toy_tokenizer

    tokenizer = toy_tokenizer()
    lm = LanguageModel(model=toy_model("bert", tokenizer), tokenizer=tokenizer)
    template = find_template("sentiment")
    with pytest.raises(ValueError, match="cannot continue"):
        ask(lm, template, read_items(template, reviews))


def test_json_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a cat\u2028sat on the mat"}\n{"text": "the dog ran"}\n', encoding="utf-8")
    items = read_items(find_template("last-word"), path)
    assert [item.answer for item in items.asked] == [("mat",), ("ran",)]


@pytest.mark.parametrize("task", ["sentiment", "translation"])
def test_what_a_window_cuts_is_counted(tmp_path: Path, task: str) -> None:
    tokenizer = train("bytes", [])
    settings = {"vocabulary": tokenizer.vocabulary, "width": 16, "heads": 2, "layers": 1, "window": 128}
    lm = LanguageModel(model=create("gpt2", settings).eval(), tokenizer=tokenizer)
    template = find_template(task)
    rows = [f"a {word} film\tpos" for word in GOOD] + [f"a {word} film\tneg" for word in BAD]
    (tmp_path / "data.tsv").write_text("\n".join([*["text\tlabel"] * (task == "sentiment"), *rows]) + "\n")
    items = read_items(template, tmp_path / "data.tsv")
    none, two, many = (each.fitting for each in ask(lm, template, items, shots=[0, 2, 6], most=4).answers)
    assert none.cut == 0
    assert none.whole == [0] * 4
    assert two.cut == 0
    assert two.whole == [2] * 4
    if task == "sentiment":  # about 40 bytes each
        assert many.cut == 4
        assert all(1 <= each <= 3 for each in many.whole)


@pytest.mark.parametrize("before", [0, 1])
def test_tokens_before_an_answer_are_those_that_are_read(before: int) -> None:
    """With the boundary before a text or nothing there: token i stands at place i + before."""
    for full, window in ((5, 8), (8, 8), (9, 8), (20, 8), (23, 8), (24, 7)):
        for length in range(1 - before, full):
            last = length - 1 + before  # the place from which the answer is predicted
            starts = [
                each.start
                for each in windows(full - 1 + before, window)
                if each.start + each.first <= last < each.start + each.length
            ]
            read = range(starts[0], last + 1)
            assert tokens_seen(length, full, window, before=before) == sum(place >= before for place in read)
            assert tokens_seen(length, full, window, before=before) <= window
