"""What users hold, on runs of real systems made by hand (so that nothing here depends on training)."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import lmlab
from lmlab.decoding.chain_rule import score_tokens
from lmlab.decoding.generate import generate
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.language_model import LanguageModel
from lmlab.tokenizers import Tokenizer
from standins import SETTINGS, TEXT, write_run

SPECS = ["characters", "bytes", "words", "bpe:300", "unigram:300", "wordpiece:120"]


@pytest.fixture(scope="session")
def make_run(tmp_path_factory):
    """A run directory, made once for each system and tokenizer."""
    made: dict[tuple[str, str], Path] = {}

    def make(kind: str, spec: str = "bpe:300") -> Path:
        if (kind, spec) not in made:
            made[kind, spec] = write_run(tmp_path_factory.mktemp("run"), kind, spec=spec)
        return made[kind, spec]

    return make


KINDS = sorted(SETTINGS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_run_scores_generates_and_names_the_next_token(make_run, kind):
    lm = lmlab.load(make_run(kind))
    assert isinstance(lm, LanguageModel)
    score = lm.score(TEXT[:200])
    assert 0 < score.bits_per_byte < 50
    assert score.bytes == len(TEXT[:200].encode())
    assert score.words == len(TEXT[:200].split())
    text = lm.generate("the cat", tokens=40)
    assert isinstance(text, str)
    assert text
    assert len(lm.next("the cat", top=5)) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_score_is_the_chain_rule_over_next(make_run, kind):
    """The sum of -log p(token | all before), as `next` gives it; the text fits in the window."""
    lm = lmlab.load(make_run(kind, "characters"))
    text = "the cat sat"
    nats = 0.0
    for place, character in enumerate(text):
        nats -= math.log(dict(lm.next(text[:place], top=999))[character])
    score = lm.score(text)
    assert score.nats == pytest.approx(nats, rel=1e-4)
    assert score.tokens == score.bytes == len(text)
    assert score.bits_per_byte == pytest.approx(nats / math.log(2) / len(text), rel=1e-4)
    assert score.perplexity == pytest.approx(math.exp(nats / len(text)), rel=1e-3)
    assert score.word_perplexity == pytest.approx(math.exp(nats / 3), rel=1e-3)


def test_next_is_a_distribution_in_order(make_run):
    lm = lmlab.load(make_run("lstm"))
    found = lm.next("the", top=10_000)
    assert len(found) == lm.tokenizer.vocabulary
    assert sum(p for _, p in found) == pytest.approx(1.0)
    assert [p for _, p in found] == sorted((p for _, p in found), reverse=True)


def test_an_ngram_knows_what_follows(make_run):
    lm = lmlab.load(make_run("ngram", "words"))
    assert lm.next("sat on", top=1)[0][0] == "the"
    assert lm.generate("sat", tokens=2, temperature=0) == " on the"
    assert lm.generate("on the", tokens=1, beams=3) in {" mat", " log"}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", KINDS)
def test_streaming_gives_what_decoding_at_once_gives(make_run, kind, spec):
    lm = lmlab.load(make_run(kind, spec))
    options = {"tokens": 60, "seed": 5, "temperature": 1.3}
    pieces = list(lm.stream("the cat", **options))
    text = "".join(piece[0] for piece in pieces)
    assert text == lm.generate("the cat", **options)

    ids = lm.tokenizer.encode("the cat")
    prompt = torch.tensor([[lm.tokenizer.boundary, *ids]])
    end = None if lm.tokenizer.newline_is_boundary else lm.tokenizer.boundary
    pick = Sampler(Sampling(temperature=1.3, seed=5))
    chosen = [drawn.token for (drawn,) in generate(lm.model, prompt, tokens=60, pick=pick, boundary=end)]
    if chosen[-1] == end:
        chosen.pop()
    assert lm.tokenizer.decode([*ids, *chosen]) == lm.tokenizer.decode(ids) + text


def test_the_same_seed_gives_the_same_text_and_another_another(make_run):
    lm = lmlab.load(make_run("gpt2"))
    texts = lm.generate("the", tokens=40, samples=4, seed=3)
    torch.rand(7)
    assert lm.generate("the", tokens=40, samples=4, seed=3) == texts
    assert len(set(texts)) == 4
    assert lm.generate("the", tokens=40, samples=4, seed=4) != texts


def test_greedy_needs_no_seed_and_goes_past_the_window(make_run):
    lm = lmlab.load(make_run("gpt2", "characters"))
    text = lm.generate("the", tokens=100, temperature=0, seed=1)
    assert text == lm.generate("the", tokens=100, temperature=0, seed=2)
    assert len(text) >= 20


def test_stop_strings_cut_the_text(make_run):
    lm = lmlab.load(make_run("ngram", "characters"))
    whole = lm.generate("the", tokens=120, seed=1)
    stop = whole[10:13]
    assert lm.generate("the", tokens=120, seed=1, stop=stop) == whole[: whole.index(stop)]
    assert lm.generate("the", tokens=120, seed=1, stop=["\0", stop]) == whole[: whole.index(stop)]


def test_stop_strings_end_each_sample_separately(make_run):
    lm = lmlab.load(make_run("ngram", "characters"))
    texts = lm.generate("the", tokens=150, samples=4, seed=1, stop=".")
    whole = lm.generate("the", tokens=150, samples=4, seed=1)
    assert texts == [text.split(".")[0] for text in whole]
    assert len({len(text) for text in texts}) > 1


def test_beams_find_texts_at_least_as_probable_as_greedy(make_run):
    lm = lmlab.load(make_run("ngram", "characters"))

    def log_probability(text: str) -> float:
        """Of the continuation; up to the boundary, if the text ends there."""
        return -float(lm.score("the " + text).token_nats[0][4:].sum())

    best = lm.generate("the ", tokens=12, beams=8, samples=3)
    assert len(set(best)) == 3
    assert len(best[0]) == 12
    assert log_probability(best[0]) >= log_probability(lm.generate("the ", tokens=12, temperature=0)) - 1e-6
    values = [log_probability(text) for text in best if len(text) == 12]
    assert values == sorted(values, reverse=True)


def test_a_text_ends_where_the_model_ends_the_document(make_run):
    lm = lmlab.load(make_run("ngram", "characters"))
    lengths = [len(text) for text in lm.generate("5 € 😀 .\n", tokens=4000, samples=3, seed=0)]
    assert min(lengths) < 4000


def test_with_words_a_line_end_is_no_end(make_run):
    lm = lmlab.load(make_run("ngram", "words"))
    text = lm.generate("the cat", tokens=200, seed=0)
    assert text.count("\n") > 3


def test_several_texts_are_scored_apart_whatever_the_batch(make_run):
    texts = ["the cat sat", "a dog ran to the mat .", "on"]
    for kind in KINDS:
        lm = lmlab.load(make_run(kind))
        together = lm.score(texts)
        assert together.nats == pytest.approx(sum(lm.score(text).nats for text in texts), rel=1e-6)
        assert together.nats == pytest.approx(lm.score(texts, batch=1).nats, rel=1e-6)
        assert together.words == 11


def test_surprisals_show_each_token(make_run):
    lm = lmlab.load(make_run("lstm", "characters"))
    score = lm.score("the\ncat")
    assert [token for token, _ in score.surprisals] == ["t", "h", "e", "\\n", "c", "a", "t"]
    assert sum(bits for _, bits in score.surprisals) == pytest.approx(score.nats / math.log(2))


def test_lossy_is_reported_and_unknown_words_are_counted(make_run):
    words = lmlab.load(make_run("ngram", "words")).score("the zebra sat on the xylophone")
    assert words.lossy
    assert words.unknown == 2
    assert not lmlab.load(make_run("ngram", "bytes")).score("zebra").lossy
    characters = lmlab.load(make_run("ngram", "characters"))
    assert not characters.score("the cat").lossy
    assert characters.score("the Q").lossy  # a character that was never seen


def test_words_count_line_ends_as_published_perplexities_do(make_run):
    score = lmlab.load(make_run("ngram", "words")).score("the cat sat\nthe dog sat\n")
    assert (score.tokens, score.words) == (8, 6)
    assert score.perplexity == pytest.approx(math.exp(score.nats / 8))


def test_a_long_text_in_windows_is_close_to_the_average_of_short_ones(make_run):
    lm = lmlab.load(make_run("gpt2", "characters"))
    score = lm.score(TEXT)
    assert score.tokens == len(TEXT)
    assert np.isfinite(np.concatenate(score.token_nats)).all()


def test_a_mixture_is_better_than_its_parts_on_the_text_its_weights_are_for(make_run):
    lm, other = lmlab.load(make_run("ngram", "characters")), lmlab.load(make_run("lstm", "characters"))
    text = "the dog and the xylophone"
    weights = lm.mix([other]).learn_mixture(text)
    mixed = lm.mix([other], weights=weights)
    assert mixed.score(text).nats <= min(lm.score(text).nats, other.score(text).nats) + 1e-6
    assert mixed.generate("the", tokens=5, seed=1)
    assert sum(p for _, p in mixed.next("the", top=999)) == pytest.approx(1.0, abs=1e-5)


def test_different_tokenizers_do_not_mix(make_run):
    with pytest.raises(ValueError, match="tokenizers differ"):
        lmlab.load(make_run("ngram", "characters")).mix([lmlab.load(make_run("lstm", "bytes"))])


def test_what_reads_backwards_mixes_only_with_its_like(make_run):
    lm = lmlab.load(make_run("lstm", "characters"))
    backwards = replace(lm, own_frame=replace(lm.frame, backwards=("tokens",)))
    with pytest.raises(ValueError, match="other frames"):
        lm.mix([backwards])
    mixed = backwards.mix([backwards])
    assert mixed.score("the dog").nats == pytest.approx(backwards.score("the dog").nats, rel=1e-5)
    assert mixed.score("the dog").nats != pytest.approx(lm.score("the dog").nats, rel=1e-3)


@pytest.mark.parametrize("text", ["", [], ["", ""]])
def test_no_text_has_no_score(make_run, text):
    with pytest.raises(ValueError, match="no text to score"):
        lmlab.load(make_run("ngram")).score(text)


def test_beams_and_drawing_exclude_each_other(make_run):
    lm = lmlab.load(make_run("ngram"))
    with pytest.raises(ValueError, match="beams = 3 with temperature, top_k"):
        lm.generate(beams=3, top_k=5, temperature=0.5)
    with pytest.raises(ValueError, match="at most as many texts as beams"):
        lm.generate(beams=2, samples=3)


def test_what_is_no_run_is_refused(tmp_path, make_run):
    with pytest.raises(ValueError, match="does not exist"):
        lmlab.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="not a run directory"):
        lmlab.load(tmp_path)


def test_scores_agree_with_scoring_the_ids(make_run):
    lm = lmlab.load(make_run("lstm"))
    ids = [lm.tokenizer.encode(TEXT[:300])]
    (nats,) = score_tokens(lm.model, ids, boundary=lm.tokenizer.boundary)
    assert lm.score(TEXT[:300]).nats == pytest.approx(nats.sum())
    assert Tokenizer.load(lm.path / "tokenizer.json").decode(ids[0]) == TEXT[:300]


# Roles


def test_a_text_is_the_same_alone_and_in_a_batch(make_run):
    """Two prompts, greedily, side by side and each alone: the same tokens and reasons, the same surprisals.

    In double precision: a recurrent net with such large random weights is chaotic, and multiplies what is rounded.
    """
    for kind in KINDS:
        lm = lmlab.load(make_run(kind, "characters"))
        if isinstance(lm.model, torch.nn.Module):
            lm.model.double()
        prompts = [lm.frame.row(a=lm.tokenizer.encode(text))["tokens"] for text in ("the cat", "a dog a")]
        options = {"tokens": 30, "pick": Sampler(Sampling(temperature=0)), "boundary": lm.tokenizer.boundary, "top": 2}
        together = [drawn for step in generate(lm.model, torch.tensor(prompts), **options) for drawn in step]
        for row, prompt in enumerate(prompts):
            alone = [drawn for (drawn,) in generate(lm.model, torch.tensor([prompt]), **options)]
            side = [drawn for drawn in together if drawn.row == row]
            assert [(drawn.token, drawn.ended) for drawn in alone] == [(drawn.token, drawn.ended) for drawn in side]
            assert [drawn.nats for drawn in alone] == pytest.approx([drawn.nats for drawn in side], rel=1e-4)
            assert [[token for token, _ in drawn.top] for drawn in alone] == [
                [token for token, _ in drawn.top] for drawn in side
            ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", SPECS)
def test_what_is_written_has_the_surprisals_of_its_score(make_run, kind, spec):
    lm = lmlab.load(make_run(kind, spec))
    steps = list(lm.writer.write("the", sampling=Sampling(seed=2, temperature=0.7), tokens=8, top=3))
    written = [each for (each,) in steps]
    assert "".join(each.text for each in written) == lm.generate("the", tokens=8, seed=2, temperature=0.7)
    ids = lm.tokenizer.encode("the")
    tokens = [each.next.token for each in written if each.next.ended != "boundary"]
    (nats,) = score_tokens(lm.model, [[*ids, *tokens]], boundary=lm.tokenizer.boundary)
    found = [each.next.nats for each in written][: len(tokens)]
    assert found == pytest.approx(nats[len(ids) :].tolist(), rel=1e-3, abs=1e-5)
    assert [each.next.ended for each in written[:-1]] == [""] * (len(written) - 1)
    assert written[-1].next.ended in ("boundary", "length")
    assert all(len(each.next.top) == 3 for each in written)


def test_a_stop_string_is_why_a_text_ends(make_run):
    lm = lmlab.load(make_run("ngram", "characters"))
    whole = lm.generate("the", tokens=60, seed=1)
    stop = whole[10:13]
    written = [each for (each,) in lm.writer.write("the", sampling=Sampling(seed=1), tokens=60, stop=stop)]
    assert written[-1].next.ended == "stop"
    assert "".join(each.text for each in written) == whole[: whole.index(stop)]
    several = list(lm.writer.write("the", sampling=Sampling(seed=1), tokens=60, samples=4, stop="."))
    reasons = [each.next.ended for step in several for each in step if each.next.ended]
    assert len(reasons) == 4
    assert "stop" in reasons


def test_the_first_sample_is_the_same_however_many_there_are(make_run):
    for kind in KINDS:
        lm = lmlab.load(make_run(kind, "characters"))
        assert lm.generate("the", tokens=25, seed=4) == lm.generate("the", tokens=25, samples=3, seed=4)[0]


def test_no_tokens_are_no_text(make_run):
    lm = lmlab.load(make_run("ngram"))
    assert lm.generate("the", tokens=0) == ""
    assert lm.generate("the", tokens=0, samples=2) == ["", ""]


def test_roles_are_there_where_the_model_can(make_run):
    lm = lmlab.load(make_run("gpt2"))
    assert lm.writer.model is lm.model
    assert not lm.scorer.rule.pseudo
    assert lm.embedder.whole(["the cat"], "mean").shape == (1, 16)
    for role in ("filler", "translator"):
        with pytest.raises(ValueError, match=r"gpt2 is a causal .*language model; it cannot"):
            getattr(lm, role)


def test_a_run_may_say_what_stands_around_its_texts(make_run, tmp_path):
    plain = lmlab.load(make_run("gpt2", "characters"))
    folder = tmp_path / "framed"
    shutil.copytree(plain.path, folder)
    plain.frame.save(folder)
    framed = lmlab.load(folder)
    assert framed.frame == plain.frame
    assert framed.score("the cat").nats == plain.score("the cat").nats
    replace(plain.frame, specials={"tokens": {"boundary": plain.tokenizer.encode("t")[0]}}).save(folder)
    assert lmlab.load(folder).next("", top=9) != plain.next("", top=9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda lm: lm.score(b"the cat"),
            r"text = b'the cat': give a text \(str\) or a list of texts, not bytes; .*decode",
        ),
        (lambda lm: lm.score([1]), r"text\[0\] = 1: give a text \(str\), not int"),
        (lambda lm: lm.score(["a", None]), r"text\[1\] = None: give a text \(str\), not None"),
        (lambda lm: lm.score(3.5), "text = 3.5: give a text"),
        (lambda lm: lm.generate(None), r"prompt = None: give a text \(str\), not None"),
        (lambda lm: lm.generate("a", tokens="5"), "tokens = '5': give a whole number, not str"),
        (lambda lm: lm.generate("a", samples=True), "samples = True: give a whole number, not bool"),
        (lambda lm: lm.stream(["a"]), r"prompt = \['a'\]: give a text"),
        (lambda lm: lm.next(7), "prompt = 7: give a text"),
        (lambda lm: lm.next("a", top=2.5), "top = 2.5: give a whole number"),
        (lambda lm: lm.embed(3), r"texts = 3: give a text \(str\) or a list of texts, not int"),
        (lambda lm: lm.embed({"a": 1}), "texts = {'a': 1}: give a text"),
        (lambda lm: lm.fill(None), "text = None: give a text|cannot predict masked"),
        (lambda lm: lm.translate(5), "text = 5: give a text|cannot write a target"),
    ],
)
def test_wrong_types_are_named(tmp_path, call, message: str) -> None:
    lm = lmlab.load(write_run(tmp_path, "gpt2"))
    with pytest.raises((TypeError, ValueError), match=message):
        call(lm)


@pytest.mark.parametrize("layers", [True, None, 1.5, [1, 2]])
def test_layers_are_a_name_or_a_number(tmp_path, layers: object) -> None:
    lm = lmlab.load(write_run(tmp_path, "gpt2"))
    with pytest.raises(ValueError, match="is not understood; allowed: last, first"):
        lm.embed("the cat", layers=layers)  # type: ignore[call-overload]


@pytest.mark.parametrize("weights", ["int8", "bf16"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ngram"])
def test_rounded_weights_predict_nearly_the_same(make_run, kind, weights):
    lm, rounded = lmlab.load(make_run(kind)), lmlab.load(make_run(kind), weights=weights)
    kept = sum(each.nbytes for each in rounded.model.parameters())
    assert kept < sum(each.nbytes for each in lm.model.parameters())
    score, near = lm.score(TEXT[:300]), rounded.score(TEXT[:300])
    assert near.bits_per_byte == pytest.approx(score.bits_per_byte, rel=0.02)
    assert near.bits_per_byte != score.bits_per_byte
    assert rounded.generate("The ", tokens=5, temperature=0)


def test_weights_that_cannot_be_rounded_are_refused(make_run):
    with pytest.raises(ValueError, match="has counts and no weights to convert"):
        lmlab.load(make_run("ngram"), weights="int8")
    with pytest.raises(ValueError, match="weights = 'int4' is not known"):
        lmlab.load(make_run("gpt2"), weights="int4")
