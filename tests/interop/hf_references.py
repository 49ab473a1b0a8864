"""Models of `transformers` of random shape and weights, and runs of ours, for the tests of the conversion."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lmlab
from encoders import filler, score_pairs
from lmlab.data.readers.examples import Example
from lmlab.layers.attention.two_stream import permutation_masks
from lmlab.models import create, find
from lmlab.models.abilities import FillsInOrder, require
from lmlab.models.model import Model, ScoresTokens
from lmlab.objectives import create_objective
from lmlab.runs.model_files import model_tensors, write_config
from lmlab.runs.storage import HEADS, TASK, write_json, write_manifest, write_tensors
from lmlab.tokenizers import Tokenizer, train

transformers: Any = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEXT = [f"The planet Mars goes round the sun {number} times, and so does Venus.\n" for number in range(40)]
ROLES = ("pad", "cls", "sep", "mask")


class Draw:
    """Odd sizes: widths that are no multiple of 8, one to five heads, any vocabulary and window."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.heads = self.chance.randint(1, 5)
        self.width = self.heads * self.chance.choice([2, 3, 4, 5, 7, 8])
        self.layers = self.chance.choice([1, 1, 1, 1, 2, 3])
        self.vocabulary = self.chance.randint(12, 99)
        self.window = self.chance.randint(5, 23)
        self.inner = self.chance.randint(3, 61)

    def choose(self, *values: Any) -> Any:
        return self.chance.choice(values)

    @property
    def decoder(self) -> dict[str, Any]:
        names = ("n_embd", "n_head", "n_layer", "n_positions", "vocab_size")
        values = (self.width, self.heads, self.layers, self.window, self.vocabulary)
        return {**dict(zip(names, values, strict=True)), "bos_token_id": None, "eos_token_id": None}

    @property
    def encoder(self) -> dict[str, Any]:
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.inner,
            "max_position_embeddings": self.window,
            "type_vocab_size": self.choose(1, 2),
            "layer_norm_eps": self.choose(1e-12, 1e-5),
            "pad_token_id": 0,
        }

    @property
    def both(self) -> dict[str, Any]:
        values = {
            "vocab_size": self.vocabulary,
            "d_model": self.width,
            "encoder_layers": self.layers,
            "decoder_layers": self.chance.choice([1, 1, 2]),
            "max_position_embeddings": self.window,
            "scale_embedding": self.choose(True, False),
            "activation_function": self.choose("gelu", "relu", "swish"),
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "forced_eos_token_id": 2,
            "decoder_start_token_id": 2,
        }
        for side in ("encoder", "decoder"):
            values |= {f"{side}_attention_heads": self.heads, f"{side}_ffn_dim": self.inner}
        return values


def _bert(draw: Draw) -> Any:
    names = ("BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction", "BertModel")
    act = draw.choose("gelu", "gelu_new")
    return draw.choose(*names), transformers.BertConfig(**draw.encoder, hidden_act=act)


def _roberta(draw: Draw, name: str = "Roberta") -> Any:
    pad = draw.choose(0, 1, 3)
    values = {**draw.encoder, "pad_token_id": pad, "max_position_embeddings": draw.window + pad + 1}
    config = getattr(transformers, f"{name}Config")(**values, bos_token_id=None, eos_token_id=None)
    return draw.choose(f"{name}ForMaskedLM", f"{name}Model"), config


def _albert(draw: Draw) -> Any:
    values = {**draw.encoder, "embedding_size": draw.chance.randint(1, 30), "bos_token_id": None, "eos_token_id": None}
    config = transformers.AlbertConfig(**values, hidden_act=draw.choose("gelu", "gelu_new"))
    return draw.choose("AlbertForPreTraining", "AlbertForMaskedLM", "AlbertModel"), config


def _reformer(draw: Draw) -> Any:
    """Hashes that both draw from one seed; the window has room for their padding, to a multiple of both chunks."""
    first, rows, chunks = draw.chance.randint(1, draw.width - 1), draw.chance.randint(1, 9), [2, 3, 4, 6, 7, 9]
    chunk, local = draw.choose(*chunks), draw.choose(*chunks)
    window = math.lcm(chunk, local) * draw.choose(1, 2, 3)
    config = transformers.ReformerConfig(
        vocab_size=draw.vocabulary, hidden_size=draw.width, num_attention_heads=draw.heads,
        attn_layers=[draw.choose("local", "lsh") for _ in range(draw.layers)], attention_head_size=draw.choose(3, 4, 8),
        feed_forward_size=draw.inner, max_position_embeddings=window, axial_pos_embds=draw.choose(True, False),
        axial_pos_shape=[rows, -(-window // rows)], axial_pos_embds_dim=[first, draw.width - first],
        lsh_attn_chunk_length=chunk, local_attn_chunk_length=local, num_hashes=draw.choose(1, 2, 3),
        num_buckets=2 if window < 4 else draw.choose(2, 4, [2, 2]), hash_seed=draw.inner, is_decoder=True,
        local_attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return draw.choose("ReformerModelWithLMHead", "ReformerModel"), config


def _electra(draw: Draw) -> Any:
    config = transformers.ElectraConfig(**draw.encoder, embedding_size=draw.choose(draw.width, 3, 17))
    return draw.choose("ElectraForPreTraining", "ElectraForMaskedLM", "ElectraModel"), config


def _llama(draw: Draw, name: str = "Llama") -> Any:
    heads = draw.choose(1, 2, 3, 4, 6)
    values = {
        "vocab_size": draw.vocabulary,
        "hidden_size": heads * draw.choose(2, 4, 6, 10),
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choose(*(groups for groups in range(1, heads + 1) if heads % groups == 0)),
        "num_hidden_layers": draw.layers,
        "intermediate_size": draw.inner,
        "max_position_embeddings": draw.window,
        "rms_norm_eps": draw.choose(1e-6, 1e-5),
        "rope_parameters": {"rope_type": "default", "rope_theta": draw.choose(100.0, 10000.0, 1e6)},
        "tie_word_embeddings": draw.choose(True, False),
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if name == "Mistral":
        values["sliding_window"] = draw.choose(None, 40)
    return draw.choose(f"{name}ForCausalLM", f"{name}Model"), getattr(transformers, f"{name}Config")(**values)


def _xlnet(draw: Draw) -> Any:
    heads = draw.choose(1, 2, 3, 4)
    config = transformers.XLNetConfig(
        vocab_size=draw.vocabulary,
        d_model=heads * draw.choose(2, 4, 6, 10),
        n_layer=draw.layers,
        n_head=heads,
        d_inner=draw.inner,
        ff_activation=draw.choose("gelu", "relu", "gelu_new"),
        layer_norm_eps=draw.choose(1e-12, 1e-5),
        mem_len=draw.choose(None, 3, 20),
        bos_token_id=None,
        eos_token_id=None,
    )
    return draw.choose("XLNetLMHeadModel", "XLNetModel"), config


FAMILIES: dict[str, Callable[[Draw], Any]] = {
    "gpt2": lambda draw: (draw.choose("GPT2LMHeadModel", "GPT2Model"), transformers.GPT2Config(**draw.decoder)),
    "openai-gpt": lambda draw: (
        draw.choose("OpenAIGPTLMHeadModel", "OpenAIGPTModel"),
        transformers.OpenAIGPTConfig(**draw.decoder),
    ),
    "llama": _llama,
    "mistral": lambda draw: _llama(draw, "Mistral"),
    "qwen2": lambda draw: _llama(draw, "Qwen2"),
    "bert": _bert,
    "xlnet": _xlnet,
    "roberta": _roberta,
    "xlm-roberta": lambda draw: _roberta(draw, "XLMRoberta"),
    "albert": _albert,
    "electra": _electra,
    "reformer": _reformer,
    "bart": lambda draw: (
        draw.choose("BartForConditionalGeneration", "BartModel"),
        transformers.BartConfig(**draw.both),
    ),
    "marian": lambda draw: (draw.choose("MarianMTModel", "MarianModel"), transformers.MarianConfig(**draw.both)),
}


def random_reference(family: str, seed: int, architecture: str | None = None) -> Any:
    """A model of `transformers`; its architecture is drawn too, unless given."""
    chosen, config = FAMILIES[family](Draw(seed))
    torch.manual_seed(seed)
    return randomise(getattr(transformers, architecture or chosen)(config).eval())


def randomise(model: Any) -> Any:
    """Weights that are not trivial: biases and norms too, and the bias of the scores where it is no parameter."""
    for name, parameter in model.named_parameters():
        if not (model.config.model_type == "marian" and "embed_positions" in name):
            nn.init.normal_(parameter, std=0.3)
    if model.config.model_type == "marian" and hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model


def scores(model: Any, hidden: Tensor) -> Tensor:
    """Over the vocabulary, by the model itself or by the head with which it fills blanks."""
    return (model if isinstance(model, ScoresTokens) else filler(model)).logits(hidden)


def in_double(reference: Any, model: Any) -> tuple[Any, Any]:
    """Two Reformers in double precision, with the rotations that both then draw.

    In single precision theirs adds logarithms to -100,000, the score of a token with itself: where it sees nobody else,
    the weights of its rounds do not add up to one (test_huggingface_reformer.py).
    """
    reference, model = copy.deepcopy(reference).double(), copy.deepcopy(model).double()
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.double)
    model.set_hashes(model.config.hashes, seed=model.config.hash_seed)
    torch.set_default_dtype(usual)
    return reference, model


def outputs(reference: Any, model: Any, *, seed: int = 0) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Everything that both models compute for the same tokens: its name, theirs and ours."""
    config = reference.config
    torch.manual_seed(seed)
    length = model.window or config.max_position_embeddings
    length = length if length > 0 else 11  # XLNet's has no end
    if config.model_type == "reformer":  # any length up to its window
        length -= seed % (length // 2 + 1)
        reference, model = in_double(reference, model)
    tokens = torch.randint(4, config.vocab_size, (3, length))
    lengths = torch.tensor([tokens.shape[1], 1, 3])
    real = torch.arange(tokens.shape[1]) < lengths[:, None]
    if hasattr(config, "decoder_layers"):
        target = tokens[:, :-1].flip(0)
        theirs = reference(input_ids=tokens, attention_mask=real.long(), decoder_input_ids=target)
        hidden = model(target, source=tokens, lengths=lengths).hidden
        real = real | True
    elif hasattr(config, "type_vocab_size"):
        kinds = torch.randint(config.type_vocab_size, tokens.shape)
        theirs = reference(tokens, attention_mask=real.long(), token_type_ids=kinds)
        hidden = model(tokens, segments=kinds, lengths=lengths).hidden
    elif config.model_type == "xlnet":
        yield from two_streams(reference, model, tokens, real, lengths)
        return
    else:
        theirs, hidden, real = reference(tokens), model(tokens).hidden, real | True
    name = type(reference).__name__
    ours: dict[str, Callable[[], Tensor]] = {
        "last_hidden_state": lambda: hidden,
        "pooler_output": lambda: model.pool(hidden),
        "prediction_logits": lambda: scores(model, hidden),
        "seq_relationship_logits": lambda: score_pairs(model, hidden),
        "sop_logits": lambda: score_pairs(model, hidden),
        "logits": lambda: scores(model, hidden),
    }
    if name == "ElectraForPreTraining":
        ours["logits"] = lambda: model.main.discriminator_head(hidden)
    elif name == "BertForNextSentencePrediction":
        ours["logits"] = lambda: score_pairs(model, hidden)
    for key, compute in ours.items():
        if getattr(theirs, key, None) is not None:
            given, found = getattr(theirs, key), compute()
            places = real[:, : given.shape[1]] if given.shape[:2] == hidden.shape[:2] else slice(None)
            yield key, given[places], found[places]


def two_streams(
    reference: Any, model: Any, tokens: Tensor, real: Tensor, lengths: Tensor
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """What XLNet computes of both streams, with segments, padding, an order of its own in each row, and a memory."""
    body = getattr(reference, "transformer", reference)
    kinds = torch.randint(3, tokens.shape)
    theirs = body(tokens, attention_mask=real.float(), token_type_ids=kinds).last_hidden_state
    yield "content", theirs[real], model(tokens, segments=kinds, lengths=lengths).hidden[real]
    if type(reference).__name__ != "XLNetLMHeadModel":
        return
    filler: Any = require(model, FillsInOrder)
    batch, length = tokens.shape
    at = torch.rand(batch, length).argsort(1)[:, : torch.randint(1, length - 1, ())]
    order = torch.zeros_like(tokens).scatter(1, at, torch.rand(at.shape).argsort(1) + 1)
    hidden = ~permutation_masks(order, at)[0] | (torch.eye(length, dtype=torch.bool) & (order > 0)[..., None])
    mapping = torch.nn.functional.one_hot(at, length).float()
    states: dict[str, Any] = {"theirs": None, "ours": None}
    for text in (tokens, tokens.flip(1)):  # a text, and what follows it
        given = reference(
            text, perm_mask=hidden.float(), target_mapping=mapping, token_type_ids=kinds, mems=states["theirs"]
        )
        found = filler.read_in_order(tokens=text, order=order, at=at, segments=kinds, state=states["ours"])
        states = {"theirs": given.mems, "ours": found.state}
        yield "prediction", given.logits, filler.logits(found.hidden)
        if not model.memory:  # theirs then keeps everything
            return


def make_run(
    path: Path, kind: str, spec: str, *, roles: tuple[str, ...] = (), **values: Any
) -> tuple[Model, Tokenizer]:
    """A run of ours with random weights, as training leaves it."""
    tokenizer = train(spec, TEXT).with_specials(roles)
    torch.manual_seed(1)
    model = create(kind, {"vocabulary": tokenizer.vocabulary, **values}, size="tiny").eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    path.mkdir(parents=True)
    tokenizer.save(path / "tokenizer.json")
    write_tensors(path / "model.safetensors", model_tensors(model))
    write_config(path, kind, model.config.model_dump())
    write_manifest(path)
    return model, tokenizer


def make_task_run(path: Path, kind: str, spec: str, task: dict[str, Any], **values: Any) -> Any:
    """A fine-tuned run with random weights; its predictor."""
    model, tokenizer = make_run(path, kind, spec, roles=() if kind in ("gpt", "gpt2", "llama") else ROLES, **values)
    usual = find(kind).task
    pooled = {"pool": usual.pool, "activation": usual.activation, "bias": usual.bias}
    own = pooled if task["kind"] in ("classification", "regression", "choice") else {}
    if kind == "bart":  # as theirs, from the decoder, which is given the text as well
        frame = {"source": "a boundary [b boundary]", "tokens": "start a [boundary b]"}
        task, own = {"frame": frame, **task}, own and {"pool": "last", "activation": "tanh", "bias": True}
    task = {"frame": dict(usual.frame), "window": model.window, **own, **task}
    heads = nn.ModuleDict(create_objective(task, tokenizer, None).heads(model))
    for parameter in heads.parameters():
        nn.init.normal_(parameter, std=0.3)
    write_json(path / TASK, task)
    write_tensors(path / HEADS, model_tensors(heads))
    write_manifest(path)
    return lmlab.load(path).predictor


def judge(predictor: Any, example: Example) -> tuple[dict[str, Tensor], Tensor, Tensor | None]:
    """The inputs of a fine-tuned run of ours for one example, its scores on the scale of the data, and their places."""
    task = predictor.task
    batch = task.batch(task.items([example]))
    with torch.inference_mode():
        scores = task.scores_and_losses(predictor.model, predictor.heads, batch)[0]
    if task.name == "regression":
        scores = task.config.mean + task.config.std * scores
    placed = task.name in ("tagging", "spans")
    return batch.inputs, scores[0], batch.labels["at"][0] if placed else None


def judge_there(model: Any, reader: Any, example: Example, places: Tensor | None) -> tuple[Tensor, Tensor]:
    """The tokens that their tokenizer makes of an example, and the scores that their model gives at these places."""
    if example.choices:
        read = reader([str(example.a)] * len(example.choices), list(example.choices), padding=True, return_tensors="pt")
    else:
        text = example.a if isinstance(example.a, str) else " ".join(example.a)
        read = reader(text, example.b, return_tensors="pt")
    inputs = {name: tensor[None] for name, tensor in read.items()} if example.choices else dict(read)
    with torch.inference_mode():
        found = model.eval()(**inputs)
    if "start_logits" in found:
        assert places is not None
        return read["input_ids"], torch.stack([found.start_logits[0], found.end_logits[0]], -1)[places]
    return read["input_ids"], found.logits[0] if places is None else found.logits[0][places]
