"""N-gram runs go through ARPA files and come back the same, whatever their tokens are."""

from __future__ import annotations

from pathlib import Path

import pytest

import lmlab
from lmlab.interop.arpa_runs import export_arpa, import_arpa
from lmlab.tokenizers import Tokenizer
from standins import TEXT, write_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")
SPECS = ["words", "characters", "bytes", "bpe:300", "wordpiece:120", "unigram:300"]
SAMPLE = "the cat sat on a log .\nthe café costs 7 € 😀\n"


def make(folder: Path, spec: str) -> Path:
    folder.mkdir()
    return write_run(folder, "ngram", spec=spec)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", ["n.arpa", "n.arpa.gz"])
def test_there_and_back_gives_the_same_scores(tmp_path: Path, spec: str, name: str) -> None:
    run = make(tmp_path / "run", spec)
    written = export_arpa(run, tmp_path / name)
    assert len(written) == (1 if spec == "words" else 2)
    import_arpa(tmp_path / name, tmp_path / "back")
    one, two = (lmlab.load(tmp_path / folder) for folder in ("run", "back"))
    for text in (SAMPLE, TEXT):
        before, after = one.score(text), two.score(text)
        assert (before.tokens, before.unknown) == (after.tokens, after.unknown)
        assert before.nats == pytest.approx(after.nats, rel=1e-5)
    assert one.generate("the", tokens=9, seed=1) == two.generate("the", tokens=9, seed=1)
    export_arpa(run, tmp_path / name, overwrite=True)


@pytest.mark.parametrize("spec", SPECS[1:])
def test_without_its_tokenizer_it_is_not_taken_for_words(tmp_path: Path, spec: str) -> None:
    run = make(tmp_path / "run", spec)
    _, beside = export_arpa(run, tmp_path / "n.arpa")
    beside.unlink()
    with pytest.raises(ValueError, match=r"give the tokenizer that cut the text into them: --tokenizer"):
        import_arpa(tmp_path / "n.arpa", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    import_arpa(tmp_path / "n.arpa", tmp_path / "back", tokenizer=Tokenizer.load(run))
    assert lmlab.load(tmp_path / "back").score(SAMPLE).tokens == lmlab.load(run).score(SAMPLE).tokens


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    export_arpa(make(tmp_path / "run", "bpe:300"), tmp_path / "n.arpa")
    other = Tokenizer.load(make(tmp_path / "other", "bpe:290"))
    with pytest.raises(ValueError, match="belongs to another model"):
        import_arpa(tmp_path / "n.arpa", tmp_path / "back", tokenizer=other)
    (tmp_path / "third").mkdir()
    write_run(tmp_path / "third", "ngram", spec="bpe:300", text=TEXT.replace("cat", "quiz").replace("dog", "box"))
    same_size = Tokenizer.load(tmp_path / "third")
    with pytest.raises(ValueError, match=r"belongs to another model"):
        import_arpa(tmp_path / "n.arpa", tmp_path / "back", tokenizer=same_size)


def test_nothing_but_an_old_tokenizer_is_replaced_beside_it(tmp_path: Path) -> None:
    run = make(tmp_path / "run", "characters")
    beside = tmp_path / "n.arpa.tokenizer.json"
    beside.write_text("my notes")
    for overwrite, message in ((False, "exists already"), (True, "is no tokenizer, so it is not replaced")):
        with pytest.raises(ValueError, match=message):
            export_arpa(run, tmp_path / "n.arpa", overwrite=overwrite)
    assert beside.read_text() == "my notes"
    assert not (tmp_path / "n.arpa").exists()
