"""The fields of the views begin with the held-out text of a run, whatever its language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lmlab.analysis.bias import check_templates
from lmlab.studio.views.examples import exchange_words, make_examples
from lmlab.studio.views.vectors import parse_tagged
from studio_page import CHROMIUM, NO_CHROMIUM, Studio
from studio_process import open_studio

GREEK = [
    f"{who} {what} {where} κάθε {when}."
    for who, what, where, when in product(
        ("Ο ψαράς", "Η γιαγιά", "Το παιδί", "Ο δάσκαλος", "Η γάτα", "Το κορίτσι", "Ο γείτονας"),
        ("κοιτάζει το καράβι", "περιμένει το γράμμα", "ακούει το τραγούδι"),
        ("στο λιμάνι", "στο παράθυρο", "στο βουνό"),
        ("πρωί", "βράδυ", "χειμώνα", "μεσημέρι", "καλοκαίρι"),
    )
]
GERMAN = [
    f"{who} sieht {what} in {where} und schweigt lange."
    for who, what, where in product(
        ("Der Lehrer", "Die Lehrerin", "Das Mädchen"), ("den Hund", "die Katze"), ("Bremen", "Dresden", "Weimar")
    )
]
JAPANESE = [
    f"{when}、{who}は{what}を待っています。"
    for when, who, what in product(("朝", "夜"), ("先生", "学生", "猫"), ("手紙", "雨の音", "駅"))
]
TEXTS = {"greek": GREEK, "german": GERMAN, "japanese": JAPANESE}
PREDICT = ("next", "write", "fill")
INSIDE = ("attention", "cells", "attribution", "neighbours", "senses")
TEST = ("surprisal", "minimal-pairs", "probes", "bias", "errors")


@pytest.mark.parametrize("language", TEXTS)
def test_examples_are_of_the_text(language: str) -> None:
    text = "\n".join(TEXTS[language])
    found = make_examples(text)
    assert found.prompt
    assert found.prompt in text
    assert found.sentences
    assert all(sentence in text for sentence in found.sentences)
    assert found.words
    assert all(word in text for word in found.words)
    assert found.pairs
    for pair in found.pairs:
        good, bad = pair.split(" | ")
        assert good in text
        assert bad not in text
        assert sorted(good) == sorted(bad)


@pytest.mark.parametrize("language", ["greek", "german"])
def test_templates_and_tags_can_be_used_as_they_are(language: str) -> None:
    found = make_examples("\n".join(TEXTS[language]))
    given = {"groups": found.groups, "templates": found.templates, "words": {"word": found.words}}
    assert check_templates(given, where="examples").templates
    words, tags = parse_tagged("\n".join(found.tagged))[0]
    assert " ".join(words) == found.sentences[0]
    assert {each.label for each in tags} == {"UPPER", "LOWER"}


def test_a_text_without_sentences_has_no_examples() -> None:
    assert make_examples("12 34\n" * 50).prompt == ""
    assert make_examples("").sentences == []


def test_words_are_exchanged_in_the_middle() -> None:
    assert exchange_words("one two three four") == "one three two four"
    assert exchange_words("one two three") == "one two three"
    assert exchange_words("夜に猫は手紙を見る。") == "夜に手紙は猫を見る。"


@pytest.fixture(scope="module")
def greek_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from lmlab.runs.recipe import make_recipe
    from lmlab.runs.run import start

    runs, text = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("text") / "greek.txt"
    text.write_text("\n".join(GREEK) + "\n", encoding="utf-8")
    model = {"size": "tiny", "width": 16, "heads": 2, "layers": 1, "window": 64}
    for kind in ("lstm", "bert"):
        settings = {"kind": kind, **(model if kind == "bert" else {"size": "tiny", "width": 16, "hidden": 16})}
        values: dict[str, Any] = {
            "data": {"text": [str(text)], "documents": "lines"},
            "tokenizer": {"spec": "words:200"},
            "model": settings,
            "train": {"budget": "2steps", "batch": 4},
        }
        start(make_recipe(values), runs / kind)
    return runs


@pytest.fixture(scope="module")
def greek(greek_runs: Path, browser: Any) -> Iterator[Studio]:
    with open_studio(greek_runs) as opened:
        studio = Studio(browser, opened.address)
        yield studio
        studio.page.close()


@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
@pytest.mark.parametrize("view", [*PREDICT, *INSIDE, *TEST])
def test_every_view_begins_in_the_language_of_the_run(greek: Studio, view: str) -> None:
    greek.page.goto("about:blank")  # what was typed elsewhere is not carried over
    page = greek.open(view)
    fields = page.locator("textarea:visible, input[type=text]:visible")
    values = {field.get_attribute("name"): field.input_value() for field in fields.all()}
    written = {name: value for name, value in values.items() if value}
    assert written
    for name, value in written.items():
        own = re.sub(r"\{(?:group|word)\}|/(?:UPPER|LOWER)", "", value)
        assert re.search(r"[α-ωά-ώ]", own), (name, value)
        assert not re.search(r"[A-Za-z]", own), (name, value)
    greek.check()
    assert page.locator(".stage").inner_text().strip()
