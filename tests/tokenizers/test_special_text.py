"""Special and added tokens that are written in a text: split for training, read as tokens by an imported tokenizer."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers as hf

from lmlab.data.corpora.text import prepare_text
from lmlab.runs.model_files import load_tokenizer
from lmlab.tokenizers import Tokenizer, load, train
from lmlab.tokenizers.engines import CHARACTER_OF
from lmlab.tokenizers.inspecting import TokenizedText, loses_text

TEXT = "the planet Mars goes round the sun, and so does Venus. "
END = "<|endoftext|>"


def imported(tokenizer: Tokenizer, *, boundary: str | None = None) -> Tokenizer:
    engine = hf.Tokenizer.from_str(tokenizer.engine.to_str())
    return Tokenizer(engine, boundary=boundary, split_special_tokens=False)


@pytest.mark.parametrize("spec", ["bpe:300", "bytes", "unigram:300", "wordpiece:80", "characters", "words"])
def test_added_tokens_are_found_in_every_kind_of_tokenizer(spec: str) -> None:
    """Each kind has a fast way of its own to encode, and none of them may miss a token that the library finds."""
    engine = hf.Tokenizer.from_str(train(spec, [TEXT * 3]).engine.to_str())
    engine.add_tokens(
        [hf.AddedToken("foo bar"), hf.AddedToken("Venus", lstrip=True), hf.AddedToken("<x>", rstrip=True)]
    )
    tokenizer = Tokenizer(hf.Tokenizer.from_str(engine.to_str()))
    for text in ("a foo bar b", "FOO bar", "so does  Venus.", "foo\nbar<x>  the", "the planet Mars", "<x>" + END):
        engine.encode_special_tokens = True
        assert tokenizer.encode(text) == engine.encode(text, add_special_tokens=False).ids, text
        assert tokenizer.encode(text) == tokenizer.encode_with_offsets(text)[0]
    assert tokenizer.vocabulary - 3 in tokenizer.encode("a foo bar b")


def test_special_tokens_are_split_unless_the_tokenizer_was_imported() -> None:
    own = train("bpe:300", [TEXT * 3])
    theirs = imported(own)
    text = f"the sun{END} and Mars"
    assert own.boundary not in own.encode(text)
    assert theirs.encode(text) == [*own.encode("the sun"), own.boundary, *own.encode(" and Mars")]
    assert theirs.encode_with_offsets(text)[0] == theirs.encode(text)
    assert theirs.splitting_specials.encode(text) == own.encode(text)
    assert theirs.encode_closed([text])[0].tolist() == own.encode(text), "what is stored for training is split"
    assert not loses_text(theirs, [text])
    assert TokenizedText(text, theirs).lossless


def test_an_imported_tokenizer_is_kept_with_its_options(tmp_path: Path) -> None:
    theirs = imported(train("bpe:300", [TEXT * 3]), boundary="Ġthe")
    theirs.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path)
    assert again is not None
    copied = pickle.loads(pickle.dumps(theirs))
    for other in (again, copied, theirs.with_specials(["mask"])):
        assert other.boundary == theirs.boundary == theirs.engine.token_to_id("Ġthe")
        assert other.encode(f"a{END}b") == theirs.encode(f"a{END}b")
    plain = load(tmp_path)  # for training
    assert plain.boundary == theirs.boundary
    assert plain.encode(f"a{END}b") == theirs.splitting_specials.encode(f"a{END}b") != theirs.encode(f"a{END}b")
    plain.save(tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path).encode(f"a{END}b") == plain.encode(f"a{END}b")  # type: ignore[union-attr]
    (tmp_path / "tokenizer_options.json").write_text('{"boundary": 3}')
    with pytest.raises(ValueError, match=r"tokenizer_options\.json is damaged"):
        load_tokenizer(tmp_path)


def test_training_text_never_becomes_a_special_token(tmp_path: Path) -> None:
    """Also where the tokenizer was imported: the boundary stands only between documents."""
    theirs = imported(train("bpe:300", [TEXT * 3]))
    (tmp_path / "book.txt").write_text((TEXT + END) * 50)
    corpus = prepare_text([tmp_path / "book.txt"], tokenizer=theirs, split=(1,), cache=tmp_path / "cache")
    assert (corpus.train.tokens == theirs.boundary).sum() == 2
    assert corpus.text_tokenizer.split_special_tokens


def missing_bytes(*left_out: int) -> Tokenizer:
    engine = hf.Tokenizer.from_str(train("bytes", []).engine.to_str())
    vocabulary = {character: i for i, character in enumerate(CHARACTER_OF) if i not in left_out}
    fewer = hf.Tokenizer(hf.models.BPE(vocabulary, []))
    fewer.pre_tokenizer, fewer.decoder = engine.pre_tokenizer, engine.decoder
    return Tokenizer(fewer)


def test_a_missing_byte_is_a_loss_only_where_a_text_has_it() -> None:
    tokenizer = missing_bytes(*range(0xF5, 0x100), 0xC3)
    assert not tokenizer.lossy
    assert not loses_text(tokenizer, [TEXT, "東京"])
    assert loses_text(tokenizer, [TEXT, "café"])
    assert TokenizedText(TEXT, tokenizer).lossless
    assert not TokenizedText("café", tokenizer).lossless
    assert tokenizer.encode("ab") == [97, 98]


@pytest.mark.parametrize(
    ("spec", "whole", "lost"), [("words", "the planet", "the  planet"), ("wordpiece:80", "the sun", "The sun")]
)
def test_a_text_that_comes_back_loses_nothing(spec: str, whole: str, lost: str) -> None:
    tokenizer = train(spec, [TEXT * 3])
    assert tokenizer.lossy
    assert not loses_text(tokenizer, [whole])
    assert loses_text(tokenizer, [whole, lost])


def test_a_space_that_is_added_is_no_loss(shared_data: Callable[[str], Path]) -> None:
    engine = hf.Tokenizer.from_str(load(shared_data("tokenizers") / "gpt2").engine.to_str())
    engine.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert not loses_text(Tokenizer(engine), [TEXT, "東京 é"])
    assert loses_text(Tokenizer(engine), [" " + TEXT])
