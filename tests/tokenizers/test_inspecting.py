"""A text as it is cut: ids as the tokenizer gives them, places that cover the text, and what is lost."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlab.tokenizers import Tokenizer, train
from lmlab.tokenizers.inspecting import TokenizedText

TEXT = "To be, or not to be: that is the question.\nWhether 'tis nobler in the mind to suffer\n" * 4
SPECS = ("bytes", "characters", "bpe:300", "unigram:300", "words", "wordpiece:100")
ALPHABET = st.sampled_from([*"Tobe ,.\n\t'é東🙂", "\x85", "\u00a0"])


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {spec: train(spec, [TEXT]) for spec in SPECS}


@settings(max_examples=60, deadline=None)
@given(text=st.text(ALPHABET, max_size=30))
def test_tokens_are_those_of_the_tokenizer_and_stand_in_order(tokenizers: dict[str, Tokenizer], text: str) -> None:
    for spec, tokenizer in tokenizers.items():
        cutting = TokenizedText(text, tokenizer)
        assert [token.id for token in cutting.tokens] == tokenizer.encode(text), spec
        assert all(token.text == text[token.start : token.end] for token in cutting.tokens)
        starts = [token.start for token in cutting.tokens]
        assert starts == sorted(starts)
        assert cutting.lossless == (tokenizer.decode(tokenizer.encode(text)) == text)
        if not tokenizer.lossy:
            covered = {place for token in cutting.tokens for place in range(token.start, token.end)}
            assert covered == set(range(len(text))), spec


def test_figures_are_those_counted_by_hand(tokenizers: dict[str, Tokenizer]) -> None:
    cutting = TokenizedText("be é be", tokenizers["bytes"])
    assert (len(cutting.ids), cutting.bytes, cutting.words) == (8, 8, 3)
    assert cutting.bytes_per_token == 1
    assert cutting.tokens_per_word == pytest.approx(8 / 3)
    assert [(token.piece, token.text) for token in cutting.tokens[3:5]] == [("\\xc3", "é"), ("\\xa9", "é")]


def test_unknown_words_are_marked_and_named(tokenizers: dict[str, Tokenizer]) -> None:
    cutting = TokenizedText("to the Ophelia", tokenizers["words"])
    assert [cutting.is_unknown(token) for token in cutting.tokens] == [False, False, True]
    assert (cutting.tokens[2].piece, cutting.tokens[2].text) == ("<unk>", "Ophelia")
    assert cutting.unknown == 1
    assert not cutting.lossless


def test_a_trimmed_space_is_given_back(tokenizers: dict[str, Tokenizer]) -> None:
    """GPT-2's tokenizer.json, as `transformers` writes it, trims the leading space off a token's place."""
    import tokenizers as hf
    from tokenizers import processors

    engine = hf.Tokenizer.from_str(tokenizers["bpe:300"].engine.to_str())
    engine.post_processor = processors.ByteLevel(trim_offsets=True)
    cutting = TokenizedText("to be or", Tokenizer(engine))
    assert "".join(token.text for token in cutting.tokens) == "to be or"


def test_an_empty_text_has_no_figures(tokenizers: dict[str, Tokenizer]) -> None:
    cutting = TokenizedText("", tokenizers["bytes"])
    assert cutting.bytes_per_token is None
    assert cutting.tokens_per_word is None
    assert cutting.lossless
