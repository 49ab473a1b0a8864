"""Chat models from and to Hugging Face: the same tokens, the same answers, and the same ends as in `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import lmlab
from chat_models import CONVERSATIONS, END, PLANETS, QUESTION, TEMPLATES, transformers, write_chat_folder
from lmlab.interop.huggingface import export_run, import_run
from lmlab.runs.recipe import make_recipe
from lmlab.runs.run import start


@pytest.fixture(scope="module", params=["chatml", "llama-2"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    folder = tmp_path_factory.mktemp("chat")
    source = write_chat_folder(folder / "theirs", request.param, trained=True)
    import_run(source, folder / "run")
    return request.param, source, folder / "run"


def answer(folder: Path, messages: Any, *, tokens: int) -> list[int]:
    """What transformers answers, greedily, with the token that ends it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        found = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=tokenizer.eos_token_id,
        )
    ids: list[int] = found[0, prompt.shape[1] :].tolist()
    return ids


@pytest.mark.parametrize("style", TEMPLATES)
def test_the_tokens_of_a_conversation_are_those_of_transformers(style: str, tmp_path: Path) -> None:
    source = write_chat_folder(tmp_path / "theirs", style)
    import_run(source, tmp_path / "run")
    lm, tokenizer = lmlab.load(tmp_path / "run"), transformers.AutoTokenizer.from_pretrained(source)
    for messages in CONVERSATIONS.values():
        expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        assert lm.chat_writer.encode(messages) == expected
    if style in END:
        assert lm.chat_writer.end_of_turn == (frozenset({tokenizer.convert_tokens_to_ids(END[style])}), ())


def test_answers_are_those_of_transformers_and_end_where_it_ends(trained: tuple[str, Path, Path]) -> None:
    style, source, run = trained
    lm, tokenizer = lmlab.load(run), transformers.AutoTokenizer.from_pretrained(source)
    for question, known in PLANETS:
        found = answer(source, [{"role": "user", "content": question}], tokens=30)
        assert len(found) < 30
        assert tokenizer.decode(found[-1:]) == END[style]
        ours = lm.chat(question, tokens=30, temperature=0)
        assert ours == tokenizer.decode(found, skip_special_tokens=True)
        assert ours.strip() == known
        pieces = [piece for (piece,) in lm.stream_chat(question, tokens=30, temperature=0)]
        assert "".join(pieces) == ours
        assert len(pieces) == len(found)


def test_a_run_keeps_its_template_and_gives_it_back(trained: tuple[str, Path, Path], tmp_path: Path) -> None:
    style, source, run = trained
    export_run(run, tmp_path / "out")
    import_run(tmp_path / "out", tmp_path / "back")
    for name in ("chat.json", "model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (run / name).read_bytes()
    assert "chat.json" in (run / "manifest.json").read_text()
    ours, theirs = (transformers.AutoTokenizer.from_pretrained(each) for each in (tmp_path / "out", source))
    for messages in CONVERSATIONS.values():
        both = [each.apply_chat_template(messages, add_generation_prompt=True)["input_ids"] for each in (ours, theirs)]
        assert both[0] == both[1]
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert ours.convert_tokens_to_ids(END[style]) in model.generation_config.eos_token_id
    assert answer(tmp_path / "out", QUESTION, tokens=30) == answer(source, QUESTION, tokens=30)


@pytest.mark.parametrize("place", ["jinja", "config", "list", "json"])
def test_templates_are_found_where_folders_have_them(place: str, tmp_path: Path) -> None:
    source = write_chat_folder(tmp_path / "theirs", "chatml")
    settings = json.loads((source / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (source / "chat_template.jinja").unlink(missing_ok=True)
    if place == "jinja":
        (source / "chat_template.jinja").write_text(TEMPLATES["chatml"])
        settings["chat_template"] = "older"
    elif place == "config":
        settings["chat_template"] = TEMPLATES["chatml"]
    elif place == "list":
        settings["chat_template"] = [
            {"name": "tool_use", "template": "other"},
            {"name": "default", "template": TEMPLATES["chatml"]},
        ]
    else:
        (source / "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATES["chatml"]}))
    (source / "tokenizer_config.json").write_text(json.dumps(settings))
    if place == "list":
        with pytest.warns(UserWarning, match="the chat templates tool_use are left out"):
            import_run(source, tmp_path / "run")
    else:
        import_run(source, tmp_path / "run")
    template = lmlab.load(tmp_path / "run").chat_template
    assert template is not None
    assert template.text == TEMPLATES["chatml"]
    assert template.special_tokens == {"bos_token": "<s>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}


def test_a_message_ends_before_the_text_that_leads_to_the_next_one(tmp_path: Path) -> None:
    import_run(write_chat_folder(tmp_path / "theirs", "plain"), tmp_path / "run")
    chat = lmlab.load(tmp_path / "run").chat_writer
    assert chat.end_of_turn.strings == ("\nUser:",)


def test_a_conversation_must_leave_room_for_the_answer(tmp_path: Path) -> None:
    import_run(write_chat_folder(tmp_path / "theirs", "zephyr", window=48), tmp_path / "run")
    lm = lmlab.load(tmp_path / "run")
    chat = lm.chat_writer
    length = len(chat.encode(QUESTION))
    pieces = list(lm.stream_chat(QUESTION, tokens=1000, seed=3))
    assert len(pieces) <= 48 - length
    with pytest.raises(ValueError, match="reads at most 48 with its answer: leave out earlier messages"):
        lm.chat(QUESTION * 4)


def test_a_run_without_a_template_says_so(tmp_path: Path) -> None:
    source = write_chat_folder(tmp_path / "theirs", "chatml")
    (source / "chat_template.jinja").unlink()
    import_run(source, tmp_path / "run")
    assert not (tmp_path / "run" / "chat.json").exists()
    with pytest.raises(ValueError, match="has no chat template, so it continues texts but answers no messages"):
        lmlab.load(tmp_path / "run").chat("Hello!")


def test_continued_training_keeps_the_template(tmp_path: Path) -> None:
    run = tmp_path / "run"
    import_run(write_chat_folder(tmp_path / "hf", "chatml"), run)
    (tmp_path / "book.txt").write_text("Venus is bright and Mars is dim. " * 200)
    text = {"data": {"text": str(tmp_path / "book.txt")}, "train": {"budget": "1steps", "batch": 2, "window": 16}}
    start(make_recipe({**text, "model": {"kind": "llama"}, "origin": str(run)}), tmp_path / "more")
    assert lmlab.load(tmp_path / "more").chat_template == lmlab.load(run).chat_template
