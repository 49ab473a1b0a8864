"""Classes of `transformers` for tasks, of random shape and weights, are runs that predict the same here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_references import FAMILIES, Draw, judge, judge_there, randomise, transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Engine
from tokenizers import models as engines
from tokenizers import pre_tokenizers, processors

import lmlab
from lmlab.data.readers.examples import Example
from lmlab.interop.huggingface import import_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
GPT2 = ["<|endoftext|>"]
XLNET = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
LLAMA = ["<unk>", "<s>", "</s>"]
WORDS = [f"w{number}" for number in range(7)]
TOKENIZERS: dict[str, tuple[list[str], Any]] = {
    "bert": (BERT, processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))),
    "roberta": (ROBERTA, processors.RobertaProcessing(("</s>", 2), ("<s>", 0))),
    "xlm-roberta": (
        ROBERTA,
        processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        ),
    ),
    "albert": (
        BERT,
        processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        ),
    ),
    "electra": (BERT, processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))),
    "gpt2": (GPT2, processors.ByteLevel()),
    "openai-gpt": (GPT2, None),
    "bart": (ROBERTA, processors.RobertaProcessing(("</s>", 2), ("<s>", 0))),
    "xlnet": (
        XLNET,
        processors.TemplateProcessing(
            single="$A <sep> <cls>:2", pair="$A <sep> $B:1 <sep>:1 <cls>:2", special_tokens=[("<sep>", 4), ("<cls>", 3)]
        ),
    ),
    "llama": (
        LLAMA,
        processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        ),
    ),
}
NAMES = {"openai-gpt": "OpenAIGPT", "gpt2": "GPT2", "xlm-roberta": "XLMRoberta", "xlnet": "XLNet"}
ENDS = ("SequenceClassification", "MultipleChoice", "TokenClassification", "QuestionAnswering")
OTHER = {("xlnet", "QuestionAnswering"), ("llama", "QuestionAnswering")}  # a search over answers; none of ours
CLASSES = [
    (family, f"{NAMES.get(family, family.title())}For{end}")
    for family in TOKENIZERS
    for end in ENDS
    if hasattr(transformers, f"{NAMES.get(family, family.title())}For{end}") and (family, end) not in OTHER
] + [("xlnet", "XLNetForQuestionAnsweringSimple")]
EXAMPLES = {
    "SequenceClassification": [Example("w0 w1 w5"), Example("w4", "w2 w3")],
    "MultipleChoice": [Example("w3 w1", choices=("w0 w2", "w5", "w6 w6"))],
    "TokenClassification": [Example(("w0", "w6", "w2"))],
    "QuestionAnswering": [Example("w1", "w3 w4 w0")],
}
EXAMPLES["QuestionAnsweringSimple"] = EXAMPLES["QuestionAnswering"]


class Roomy(Draw):
    """Windows and vocabularies with room for the examples."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.window, self.vocabulary = self.window + 11, self.vocabulary + 2

    @property
    def encoder(self) -> dict[str, Any]:
        return {**super().encoder, "type_vocab_size": 2}


def save_random(folder: Path, family: str, name: str, seed: int, **values: Any) -> tuple[Any, Any]:
    """A model of theirs with a tokenizer, as people publish it."""
    _, config = FAMILIES[family](Roomy(seed))
    for key, value in values.items():
        setattr(config, key, value)
    torch.manual_seed(seed)
    model = randomise(getattr(transformers, name)(config).eval())
    model.save_pretrained(folder)
    return model, save_tokenizer(folder, family)


def save_tokenizer(folder: Path, family: str) -> Any:
    specials, processor = TOKENIZERS[family]
    pieces = [*specials, *WORDS]
    engine = Engine(engines.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token=pieces[-1]))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens(specials)
    if processor is not None:
        engine.post_processor = processor
    engine.save(str(folder / "tokenizer.json"))
    pad = next((piece for piece in specials if "pad" in piece.lower()), None)
    kinds = ["token_type_ids"] if specials in (BERT, XLNET) else []
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=engine,
        pad_token=pad,
        padding_side="left" if specials is XLNET else "right",  # its last token stands for the text
        model_input_names=["input_ids", *kinds, "attention_mask"],
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("family", "name"), CLASSES)
def test_the_same_scores(family: str, name: str, seed: int, tmp_path: Path) -> None:
    end, labels = name.partition("For")[2], [f"label {number}" for number in range(seed + 1)]
    own = end in ("SequenceClassification", "TokenClassification")
    values = {"id2label": dict(enumerate(labels))} if own else {}
    model, reader = save_random(tmp_path / "hf", family, name, seed, **values)
    import_run(tmp_path / "hf", tmp_path / "run")
    predictor = lmlab.load(tmp_path / "run").predictor
    for example in EXAMPLES[end]:
        inputs, ours, places = judge(predictor, example)
        tokens, theirs = judge_there(model, reader, example, places)
        if not example.choices:
            assert inputs.get("source", inputs["tokens"]).tolist() == tokens.tolist()
        assert (ours - theirs).abs().max() <= 1e-4
    if own and predictor.task.name != "regression":
        assert predictor.task.config.labels == labels
    assert predictor.task.name != "regression" or len(labels) == 1
    assert len(predictor.predict(EXAMPLES[end])) == len(EXAMPLES[end])


def change_config(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def test_labels_without_names_are_called_as_there(tmp_path: Path) -> None:
    save_random(tmp_path / "hf", "bert", "BertForSequenceClassification", 0)
    import_run(tmp_path / "hf", tmp_path / "run")
    assert lmlab.load(tmp_path / "run").predictor.task.config.labels == ["LABEL_0", "LABEL_1"]


def test_a_vocabulary_file_alone_gives_the_frame_of_the_family(tmp_path: Path) -> None:
    model, _ = save_random(tmp_path / "hf", "bert", "BertForSequenceClassification", 0)
    (tmp_path / "hf/tokenizer.json").unlink()
    (tmp_path / "hf/vocab.txt").write_text("\n".join([*BERT, *WORDS]))
    import_run(tmp_path / "hf", tmp_path / "run")
    predictor = lmlab.load(tmp_path / "run").predictor
    inputs, ours, _ = judge(predictor, Example("w0 w1", "w2"))
    assert inputs["tokens"].tolist() == [[2, 5, 6, 3, 7, 3]]
    assert inputs["segments"].tolist() == [[0, 0, 0, 0, 1, 1]]
    with torch.inference_mode():
        theirs = model(inputs["tokens"], token_type_ids=inputs["segments"]).logits[0]
    assert (ours - theirs).abs().max() <= 1e-4


def test_a_pooler_that_tags_do_not_need_is_kept(tmp_path: Path) -> None:
    """Old versions saved it with every class."""
    model, _ = save_random(tmp_path / "hf", "bert", "BertForTokenClassification", 1)
    tensors = load_file(tmp_path / "hf/model.safetensors")
    width = model.config.hidden_size
    tensors |= {"bert.pooler.dense.weight": torch.eye(width), "bert.pooler.dense.bias": torch.ones(width)}
    save_file(tensors, tmp_path / "hf/model.safetensors")
    import_run(tmp_path / "hf", tmp_path / "run")
    run = lmlab.load(tmp_path / "run")
    assert run.model.config.pooler
    assert run.predictor.tag("w0 w1").value


@pytest.mark.parametrize(
    ("family", "name", "values", "words"),
    [
        ("bert", "BertForSequenceClassification", {"problem_type": "multi_label_classification"}, "problem_type"),
        ("bert", "BertForSequenceClassification", {"problem_type": "regression"}, "'regression' with one"),
        ("bert", "BertForSequenceClassification", {"id2label": {"0": "a", "1": "a"}}, "a different label"),
        ("bert", "BertForSequenceClassification", {"id2label": {"0": "a", "7": "b"}}, "numbers from 0 to 1"),
        ("bert", "BertForSequenceClassification", {"id2label": ["a", "b"]}, "id2label is not a table"),
        ("bert", "BertForTokenClassification", {"id2label": {"0": "a"}}, "classifier.weight is [2, "),
        ("electra", "ElectraForMultipleChoice", {"summary_type": "mean"}, "summary_type = 'mean' is not supported"),
        ("electra", "ElectraForMultipleChoice", {"summary_use_proj": False}, "summary_use_proj = False"),
        ("gpt2", "GPT2DoubleHeadsModel", {}, "unknown architecture 'GPT2DoubleHeadsModel' of gpt2"),
        ("bart", "BartForQuestionAnswering", {"decoder_start_token_id": 0}, "decoder_start_token_id = 0"),
    ],
)
def test_what_is_no_task_here_is_refused(
    family: str, name: str, values: dict[str, Any], words: str, tmp_path: Path
) -> None:
    save_random(tmp_path / "hf", family, name, 2)
    change_config(tmp_path / "hf", **values)
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        import_run(tmp_path / "hf", tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()
