"""Tokens to text as they come: whole characters, joined as in the whole text, cut before stop strings."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Engine

from lmlab.decoding.streaming import TextStream, split_unfinished
from lmlab.tokenizers import Tokenizer, train

SUBWORDS = train("bpe:400", ["Ein schöner Tag — naïve cafés cost 3 €, 😀 or \N{REPLACEMENT CHARACTER}. " * 20])
SUBWORDS.engine.add_tokens([AddedToken(text, special=False) for text in ("<tool call>", "<｜User｜>", "a\tb", "end")])
ADDED = [SUBWORDS.engine.token_to_id(text) for text in ("<tool call>", "<｜User｜>", "a\tb", "end")]


class Bytes:
    def decode(self, ids):
        return bytes(ids).decode("utf-8", errors="replace")

    def bytes_of(self, token):
        return bytes([token])


class Words:
    """Joins with spaces, as word tokenizers do."""

    def decode(self, ids):
        return " ".join(f"w{i}" for i in ids)

    def bytes_of(self, token):
        return None


def feed(stream, ids):
    pieces = [stream.add(token) for token in ids]
    return pieces, "".join(pieces) + stream.finish()


def test_incomplete_characters_wait():
    ids = list("aé€😀b".encode())
    pieces, text = feed(TextStream(Bytes()), ids)
    assert pieces == ["a", "", "é", "", "", "€", "", "", "", "😀", "b"]
    assert text == "aé€😀b"


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, 255), max_size=200), prompt=st.text(max_size=20))
def test_any_bytes_come_out_as_decoding_them_at_once(ids, prompt):
    stream = TextStream(Bytes(), prompt=list(prompt.encode()))
    assert feed(stream, ids)[1] == Bytes().decode(ids)


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=100))
def test_any_text_streams_without_replacement_characters_of_its_own(text):
    pieces, whole = feed(TextStream(Bytes()), list(text.encode()))
    assert whole == text
    assert sum(piece.count("\ufffd") for piece in pieces) <= text.count("\ufffd")


@settings(max_examples=200, deadline=None)
@given(
    ids=st.lists(st.integers(0, SUBWORDS.vocabulary - 1) | st.sampled_from(ADDED), max_size=120),
    prompt=st.lists(st.integers(0, SUBWORDS.vocabulary - 1), max_size=12),
    stop=st.lists(st.sampled_from([" ", "é", "Tag", "\N{REPLACEMENT CHARACTER}"]), max_size=2),
)
@example(ids=[95], prompt=[127, 0], stop=[])
def test_tokens_that_say_their_text_alone_give_the_same(ids, prompt, stop):
    class Whole:
        """Has no text of single tokens."""

        decode, bytes_of = SUBWORDS.decode, SUBWORDS.bytes_of

    quick, slow = (feed(TextStream(each, prompt=prompt, stop=stop), ids)[1] for each in (SUBWORDS, Whole()))
    assert quick == slow
    if not stop:
        whole, before = SUBWORDS.decode([*prompt, *ids]), split_unfinished(SUBWORDS, prompt)[0]
        assert before + quick == whole


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=30), cut=st.integers(0, 100), more=st.lists(st.integers(0, 255), max_size=8))
@example(text="", cut=1, more=[0xED, 0xA0])
def test_a_character_that_a_prompt_begins_is_not_lost(text, cut, more):
    ids = [*text.encode(), *more]
    prompt, rest = ids[:cut], ids[cut:]
    before, unfinished = split_unfinished(Bytes(), prompt)
    assert before + unfinished == Bytes().decode(prompt)
    assert before + feed(TextStream(Bytes(), prompt=prompt), rest)[1] == Bytes().decode(ids)


def test_a_replacement_character_of_the_prompt_itself_is_not_repeated():
    prompt = "a\ufffd".encode()
    assert split_unfinished(Bytes(), prompt) == ("a\ufffd", "")
    assert feed(TextStream(Bytes(), prompt=prompt), b"b")[1] == "b"


def fallback_tokenizer():
    """Characters as SentencePiece has them: those that the vocabulary lacks are bytes."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    engine = Engine(models.BPE(vocabulary, [("▁", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    engine.decoder = decoders.Sequence(steps)
    engine.add_special_tokens(["<s>", "</s>", "<unk>"])
    return Tokenizer(engine)


FALLBACK = fallback_tokenizer()


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from("ab é€😀汉\ufffd"), max_size=40), cut=st.integers(0, 60))
def test_characters_that_are_spelled_in_bytes_come_out_whole(text, cut):
    ids = FALLBACK.encode(text)
    assert FALLBACK.decode(ids) == text
    pieces, whole = feed(TextStream(FALLBACK), ids)
    assert whole == text
    assert sum(piece.count("\ufffd") for piece in pieces) <= text.count("\ufffd")
    before = split_unfinished(FALLBACK, ids[:cut])[0]
    assert before + feed(TextStream(FALLBACK, prompt=ids[:cut]), ids[cut:])[1] == text


def test_bytes_that_never_become_a_character_are_marked():
    euro = FALLBACK.encode("€")[-3:]
    assert feed(TextStream(FALLBACK), euro[:2])[1] == "\ufffd"
    assert feed(TextStream(FALLBACK), [*euro, *euro[:2]])[1] == "€\ufffd"
    assert feed(TextStream(FALLBACK), [*euro[:2], *FALLBACK.encode("b")[-1:]])[1] == "\ufffd\ufffdb"


def test_spaces_join_to_the_prompt():
    assert feed(TextStream(Words(), prompt=[1, 2]), [3, 4])[1] == " w3 w4"
    assert feed(TextStream(Words()), [3, 4])[1] == "w3 w4"
    assert feed(TextStream(Words(), prompt=[7]), list(range(100)))[1] == "".join(f" w{i}" for i in range(100))


def test_a_stop_string_ends_the_text_before_it_even_across_tokens():
    stream = TextStream(Bytes(), stop=["STOP"])
    pieces = [stream.add(token) for token in b"a S STOx STOP more"]
    assert "".join(pieces) == "a S STOx "
    assert stream.stopped
    assert stream.add(ord("z")) == ""
    assert stream.finish() == ""


def test_what_only_looks_like_a_stop_string_is_held_and_then_given():
    stream = TextStream(Bytes(), stop=["\n\n"])
    assert [stream.add(token) for token in b"a\nb\n"] == ["a", "", "\nb", ""]
    assert stream.finish() == "\n"


@settings(max_examples=200, deadline=None)
@given(text=st.text("abc", max_size=40), stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_stop_strings_cut_where_the_first_of_them_is_complete(text, stops):
    expected = text
    for end in range(len(text) + 1):
        found = [text[:end].find(stop) for stop in stops if stop in text[:end]]
        if found:
            expected = text[: min(found)]
            break
    assert feed(TextStream(Bytes(), stop=stops), list(text.encode()))[1] == expected


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="empty stop string"):
        TextStream(Bytes(), stop=[""])
