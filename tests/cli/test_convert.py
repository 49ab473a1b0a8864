"""lmlab convert between runs and Hugging Face folders, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers")
TEXT = "The planet Mars goes round the sun, and so does Venus. Once upon a time, somebody wrote it down.\n" * 60


@pytest.fixture
def lmlab(run_command, tmp_path: Path):
    (tmp_path / "book.txt").write_text(TEXT)
    trained = ("--size", "tiny", "--tokenizer", "bpe:280", "--budget", "2steps", "--set", "train.batch=2")
    assert run_command("train", "gpt2", "book.txt", "-o", "run", *trained).code == 0
    return run_command


def test_a_trained_model_goes_there_and_comes_back(lmlab, tmp_path: Path) -> None:
    said = lmlab("convert", "run", "hf", "--to", "huggingface")
    assert (said.code, said.out) == (0, "wrote hf")
    assert lmlab("convert", "hf", "back").code == 0
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    one, two = (json.loads(lmlab("score", run, "book.txt", "--json").out) for run in ("run", "back"))
    assert one["nats"] == two["nats"]
    assert lmlab("generate", "back", "The planet", "--tokens", "5").code == 0
    assert lmlab("next", "back", "The planet").code == 0

    said = lmlab("convert", "run", "hf", "--to", "huggingface")
    assert said.code == 2
    assert "--overwrite" in said.err
    assert lmlab("convert", "run", "hf", "--overwrite").code == 0
    assert lmlab("convert", "hf", "back", "--overwrite").code == 0


def test_a_tokenizer_from_elsewhere(lmlab, tmp_path: Path) -> None:
    assert lmlab("convert", "run", "hf").code == 0
    (tmp_path / "hf/tokenizer.json").rename(tmp_path / "my.json")
    assert "--tokenizer" in lmlab("convert", "hf", "back").err
    assert lmlab("convert", "hf", "back", "--tokenizer", "my.json").code == 0
    assert lmlab("score", "back", "book.txt").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "run", "hf", "--to", "hugingface"], "did you mean 'huggingface'?"),
        (["convert", "run", "run", "--overwrite"], "choose another name"),
        (["convert", "run", ".", "--overwrite"], "choose another name"),
        (["convert", "run", "book.arpa"], "is not an n-gram model"),
        (["convert", "run", "hf", "--to", "arpa"], "is not an n-gram model"),
        (["convert", "run", "book.txt"], "book.txt exists already"),
        (["convert", "run/model.safetensors", "hf"], "give the folder that holds it, run"),
        (["convert", "run", "hf", "--tokenizer", "book.txt"], "--tokenizer is for Hugging Face folders and ARPA files"),
        (["convert", "run", "run", "--overwrite"], "error: run is read by this command"),
        (["convert", "run", ".", "--overwrite"], ". holds run, which is read by this command"),
        (["convert", "empty", "back"], "neither a run nor a Hugging Face folder"),
        (["convert", "nothing.arpa", "back"], "nothing.arpa is empty"),
        (["convert", "nothing.vec", "back"], "nothing.vec is empty"),
        (["convert", "half", "back"], "half/options.json is there, but the weights (*.hdf5) are missing"),
    ],
)
def test_bad_input_is_one_clear_message(lmlab, arguments: list[str], message: str, tmp_path: Path) -> None:
    for name in ("empty", "half"):
        (tmp_path / name).mkdir()
    (tmp_path / "half" / "options.json").write_text("{}")
    for name in ("nothing.arpa", "nothing.vec"):
        (tmp_path / name).touch()
    before = sorted(path.name for path in tmp_path.iterdir())
    said = lmlab(*arguments)
    assert said.code == 2
    assert message in said.err
    assert "Traceback" not in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == before, "nothing is left behind"
    assert (tmp_path / "book.txt").read_text() == TEXT


def test_an_ngram_is_no_model_of_theirs(run_command, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    assert run_command("train", "ngram", "book.txt", "-o", "counts", "--tokenizer", "words", "--size", "tiny").code == 0
    said = run_command("convert", "counts", "hf", "--to", "huggingface")
    assert said.code == 2
    assert "transformers has no model like ngram" in said.err
    assert run_command("convert", "counts", "counts.lm").code == 0
    assert run_command("convert", "counts", "counts.lm", "--overwrite").code == 0
    assert run_command("convert", "counts.lm", "back").code == 0
    assert run_command("convert", "counts.lm", "back", "--overwrite").code == 0


@pytest.fixture
def imported(run_command, tmp_path: Path):
    """A random GPT-2 of transformers, whose tokenizer puts nothing before a text, as a run."""
    import tokenizers as hf
    import torch
    from tokenizers import decoders, models, pre_tokenizers, trainers

    engine = hf.Tokenizer(models.BPE())
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    engine.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=90, special_tokens=["<stop>"]))
    names = {"bos_token": "<stop>", "eos_token": "<stop>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **names).save_pretrained(tmp_path / "hf")
    torch.manual_seed(0)
    size = {"n_embd": 24, "n_head": 3, "n_layer": 1, "n_positions": 64, "initializer_range": 0.5}
    config = transformers.GPT2Config(vocab_size=90, bos_token_id=0, eos_token_id=0, **size)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "hf")
    return run_command


def test_what_stands_before_a_text_is_reported_and_can_be_chosen(imported, tmp_path: Path) -> None:
    said = imported("convert", "hf", "run")
    line = "boundary: nothing is put before a text (--boundary puts <stop> there)"
    assert said.out == f"wrote run {line}"

    texts = {}
    for option in ([], ["--no-boundary"], ["--boundary"]):
        said = imported("generate", "run", "The planet", "--temperature", "0", "--json", *option)
        texts[tuple(option)] = json.loads(said.out)["samples"]
        assert said.err.startswith("boundary: nothing" if option != ["--boundary"] else "boundary: <stop> is put")
    assert texts[()] == texts["--no-boundary",] != texts["--boundary",]

    first = [imported("next", "run", "The planet", "--json", *option).out for option in ([], ["--boundary"])]
    assert first[0] != first[1]

    plain, without, put = (
        imported("score", "run", "--text", "The planet Mars", *option)
        for option in ([], ["--no-boundary"], ["--boundary"])
    )
    assert f"{line}; the first token is predicted from it" in plain.out
    assert "boundary:" not in put.out, "as for every run that lmlab trains"
    bits = [said.out.split()[0] for said in (plain, without, put)]
    assert bits[0] == bits[1] != bits[2]
    assert "lossy" not in plain.out, "the vocabulary lacks bytes, but none of this text"
    assert "(lossy)" in imported("score", "run", "--text", "The planet é").out


def test_a_boundary_is_no_option_of_other_models(lmlab, tmp_path: Path) -> None:
    assert lmlab("generate", "run", "The", "--tokens", "3", "--no-boundary").code == 0
    trained = ("--size", "tiny", "--tokenizer", "wordpiece:80", "--budget", "2steps", "--set", "train.batch=2")
    assert lmlab("train", "bert", "book.txt", "-o", "bert", *trained).code == 0
    said = lmlab("score", "bert", "--text", "the sun", "--no-boundary")
    assert said.code == 2
    assert "leave the option out" in said.err
    assert said.err.count("\n") == 0


def test_a_run_that_learns_from_an_imported_one_splits_special_tokens(imported, tmp_path: Path) -> None:
    """Its boundary is that of the imported run, and text that it learns from never becomes one."""
    import lmlab

    (tmp_path / "book.txt").write_text(TEXT + "a<stop>b")
    assert imported("convert", "hf", "run").code == 0
    said = imported("train", "gpt2", "book.txt", "-o", "more", "--from", "run", "--budget", "1steps")
    assert said.code == 0, said.err
    origin, more = (lmlab.load(tmp_path / name).text_tokenizer for name in ("run", "more"))
    assert more.boundary == origin.boundary == 0
    assert more.vocabulary == origin.vocabulary
    assert 0 in origin.encode("a<stop>b")
    assert 0 not in more.encode("a<stop>b")
