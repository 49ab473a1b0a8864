"""LanguageModel: a model with its tokenizer, and everything that can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import torch

from lmlab.analysis.alignment import Alignment
from lmlab.analysis.embedding import Pool, Reading, TokenVectors, Vectors
from lmlab.analysis.pictures.text_attention import region_inputs
from lmlab.decoding.filler import BEAMS, Filled, Order
from lmlab.decoding.interpolation import InterpolatedModel
from lmlab.decoding.kind_view import KindView
from lmlab.decoding.sampling import Sampling, SamplingOptions
from lmlab.decoding.scorer import Score
from lmlab.decoding.translator import Searching, Translation
from lmlab.layers.kernels import calibration
from lmlab.layers.kernels.linear import round_weights
from lmlab.layers.kernels.low_precision import Precision, check_precision
from lmlab.media_methods import MediaMethods
from lmlab.messages import check_path, check_text, check_texts, check_whole_number, suggest_keywords
from lmlab.models.abilities import (
    PredictsNext,
    ability,
    learns_by_gradient,
    require,
)
from lmlab.pages.search_tree import SearchTree
from lmlab.progress import ReportProgress
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.boundary import with_boundary, without_boundary
from lmlab.tokenizers.chat_template import FILE as CHAT
from lmlab.tokenizers.chat_template import ChatTemplate, Messages
from lmlab.tokenizers.frames import NEXT_TOKEN, make_frame
from lmlab.tokenizers.processors import load_processor
from lmlab.tokenizers.processors.joined import JoinedTokenizer

if TYPE_CHECKING:
    from lmlab.data.corpora.corpus import Processor
    from lmlab.data.readers.media import Picture
    from lmlab.tasks.predicting import Ensemble, Predictor


@suggest_keywords
def load(path: str | Path, *, device: str | torch.device = "cpu", weights: str = "fp32") -> LanguageModel:
    """The language model of a run directory.

    With `weights` "int8" or "bf16" its matrices are rounded, for faster use on a CPU in less memory; such a model gives
    no gradients.

    >>> lm = lmlab.load("runs/book")
    """
    from lmlab.data.readers.files import cache_folder
    from lmlab.runs.model_files import load_frame, load_model, load_source_tokenizer
    from lmlab.runs.storage import TASK

    path = Path(check_path("path", path))
    if measured := calibration.load(cache_folder()):
        calibration.use(measured)
    if not path.exists():
        raise ValueError(f"{path} does not exist; a run directory is made by: lmlab train MODEL TEXT -o {path}")
    precision = check_precision(weights)
    model, tokenizer = load_model(path)
    processor = load_processor(path)
    if learns_by_gradient(model):
        model.to(device).eval()
    convert_weights(model, precision, run=path)
    if isinstance(processor, JoinedTokenizer):
        return _of_several_kinds(model, processor, path)
    return LanguageModel(
        model=model,
        tokenizer=tokenizer,
        path=path,
        source_tokenizer=load_source_tokenizer(path),
        own_frame=None if tokenizer is None else load_frame(path, model, tokenizer),
        own_predictor=load_predictor(path, model, tokenizer, processor) if (path / TASK).is_file() else None,
        chat_template=ChatTemplate.load(path) if (path / CHAT).is_file() else None,
        processor=processor,
    )


def convert_weights(model: Any, precision: Precision, *, run: Path) -> None:
    """Round the weights of a model; a ValueError says why that cannot be done."""
    if precision == "fp32":
        return
    if not learns_by_gradient(model):
        raise ValueError(f"weights = {precision!r}: {run} has counts and no weights to convert; leave weights out")
    if (kind := next(model.parameters()).device.type) != "cpu":
        raise ValueError(f"weights = {precision!r} needs a CPU, and the model is on {kind}: give device = 'cpu'")
    round_weights(model, precision)


def _of_several_kinds(model: Any, processor: JoinedTokenizer, path: Path) -> LanguageModel:
    """The language model of a run that has learnt several kinds of data: with text, it is a model of that text."""
    text = next((name for name, part in processor.parts.items() if isinstance(part, Tokenizer)), None)
    if text is None:
        return LanguageModel(model=model, tokenizer=None, path=path, processor=processor)
    tokenizer = processor.parts[text]
    assert isinstance(tokenizer, Tokenizer)
    view, frame = KindView(model, processor.ids[text]), make_frame(NEXT_TOKEN, tokenizer)
    return LanguageModel(model=view, tokenizer=tokenizer, path=path, own_frame=frame, processor=processor)


def load_predictor(
    path: Path, model: Any, tokenizer: Tokenizer | None, processor: Processor | None = None
) -> Predictor:
    """The model of a fine-tuned run with the head of its task."""
    from lmlab.objectives import create_objective
    from lmlab.runs.model_files import load_heads
    from lmlab.runs.storage import TASK, read_json
    from lmlab.runs.upgrade import upgrade_task
    from lmlab.tasks.predicting import Predictor

    task: Any = create_objective(upgrade_task(read_json(path / TASK)), tokenizer, None, processor)
    task.open(path)
    if missing := task.external_folders(path):
        raise ValueError(
            f"{path} reads the states of {', '.join(missing)}, and has no copy of them in its folder states; copy the "
            "whole run, or fine-tune it again"
        )
    heads = torch.nn.ModuleDict(task.heads(model))
    load_heads(path, heads)
    return Predictor(task=task, model=model, heads=heads.to(model.device).eval())  # type: ignore[arg-type]


def load_ensemble(
    paths: Sequence[str | Path], *, device: str | torch.device = "cpu", weights: str = "fp32"
) -> Predictor | Ensemble:
    """The predictor of a fine-tuned run; of several runs of one task, the one that averages over them."""
    from lmlab.tasks.predicting import Ensemble

    predictors = [load(path, device=device, weights=weights).predictor for path in paths]
    return predictors[0] if len(predictors) == 1 else Ensemble(predictors=predictors)


@dataclass(frozen=True, kw_only=True)
class LanguageModel(MediaMethods):
    """A model and the tokenizer it was trained with, if it reads text.

    Its methods use it (`generate`, `score`, `fill`, `embed`, `translate`, `classify`, `caption`, `transcribe`,
    `compose`, `draw`, `act` …) and analyse it (`attention`, `surprisal`, `attribution` …). Its roles have more options:
    `writer`, `chat_writer`, `scorer`, `filler`, `translator`, `embedder`, `predictor`, `captioner`, `transcriber`,
    `composer`, `painter`, `actor`, `matcher`. A ValueError says what to use instead where the model lacks the ability.

    >>> lm = lmlab.load("runs/book")
    >>> lm.generate("Once upon a time", tokens=20)
    """

    def __repr__(self) -> str:
        tokens = [f"{self.model.vocabulary:,} tokens"] if hasattr(self.model, "vocabulary") else []
        return f"LanguageModel({', '.join([type(self.model).__name__, *tokens, str(self.path or 'not saved')])})"

    def _repr_html_(self) -> str:
        """A card for notebooks: run, parameters, tokenizer and abilities."""
        from lmlab.models.abilities import ABILITIES
        from lmlab.pages.views import show_card

        facts: dict[str, Any] = {"run": self.path or "not saved"}
        if learns_by_gradient(self.model):
            facts["parameters"] = f"{sum(each.numel() for each in self.model.parameters()):,}"
        if self.tokenizer is not None:
            facts["tokenizer"] = f"{self.tokenizer.spec}, {self.tokenizer.vocabulary:,} tokens"
        able = [each.name for each in ABILITIES.values() if ability(self.model, each.kind) is not None]
        return show_card(type(self.model).__name__, {**facts, "predicts or gives": ", ".join(able)})

    def with_boundary(self) -> LanguageModel:
        """The same model, which reads the boundary token before every text."""
        return replace(self, own_frame=with_boundary(self.frame))

    def without_boundary(self) -> LanguageModel:
        """The same model, which reads nothing before a text, unless the text is empty."""
        return replace(self, own_frame=without_boundary(self.frame))

    @suggest_keywords
    def classify(self, text: str | Sequence[str], second: str | Sequence[str] | None = None) -> Any:
        """The class or score of a text or a pair, by a fine-tuned run; for lists of texts, a list."""
        return self.predictor.classify(text, second)

    @suggest_keywords
    def score(self, text: str | Sequence[str], *, batch: int = 16, progress: ReportProgress | None = None) -> Score:
        """Bits per byte and perplexity of a text, or of several independent texts.

        A masked model predicts each token from all others: its pseudo-log-likelihood (`pseudo`).

        >>> lm.score("The planet Mars").bits_per_byte
        """
        return self.scorer.score(check_texts("text", text), batch=batch, progress=progress)

    @suggest_keywords
    def fill(
        self,
        text: str,
        *,
        picture: str | Path | Picture | None = None,
        top: int = 5,
        jointly: bool = False,
        order: Order = "left-to-right",
        beams: int = BEAMS,
    ) -> Filled:
        """The best fillings of a text with `[MASK]` tokens, and the best tokens of each mask.

        Several masks are filled independently or `jointly`: see decoding/filler.py. A model of texts with pictures
        (visualbert, vilbert) reads the `picture` beside the text: a file, or a `Picture` with its regions.

        >>> lm.fill("He drove the [MASK] home.").fillings[0].text
        """
        filler = self.filler if picture is None else replace(self.filler, inputs=region_inputs(self, picture))
        return filler.fill(
            check_text("text", text), top=check_whole_number("top", top), jointly=jointly, order=order, beams=beams
        )

    @overload
    def embed(
        self, texts: str | Sequence[str], *, pool: None = ..., **reading: Unpack[Reading]
    ) -> list[TokenVectors]: ...

    @overload
    def embed(self, texts: str | Sequence[str], *, pool: Pool, **reading: Unpack[Reading]) -> Vectors: ...

    @suggest_keywords
    def embed(
        self, texts: str | Sequence[str], *, pool: Pool | None = None, **reading: Unpack[Reading]
    ) -> list[TokenVectors] | Vectors:
        """The vectors of each text's tokens, with their words; with `pool`, one vector for each text [N, D].

        `layers` is last, first (the embeddings), second-to-last, a number, sum:, mean: or concat: with all, -4: or 1,3,
        or mix, the mean of all. `pool` is cls, mean or max. `truncate` cuts texts that are too long, and
        `batch_tokens` is the batch size in tokens.

        >>> lm.embed(["a text", "another"], pool="mean").shape
        """
        given, embedder = check_texts("texts", texts), replace(self.embedder, **reading)
        return embedder.tokens(given) if pool is None else embedder.whole(given, pool)

    @suggest_keywords
    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int = 100,
        samples: int = 1,
        beams: int | None = None,
        length_penalty: float = 0.0,
        stop: str | Sequence[str] = (),
        trace: Callable[[SearchTree], None] | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> str | list[str]:
        """The continuation of a prompt (without the prompt), or a list of `samples` of them.

        It is sampled with the options of `Sampling`: `temperature`, `top_k`, `top_p`, `min_p`, penalties, `seed`. With
        `beams`, the most probable continuations of a beam search are returned instead, best first, and `trace` receives
        the search tree. The text ends after `tokens` tokens, before a `stop` string, or where the model ends the
        document.

        >>> lm.generate("Once upon a time", tokens=50, temperature=0.8, seed=1)
        """
        texts = self.writer.generate(
            check_text("prompt", prompt),
            sampling=Sampling(**sampling),
            tokens=check_whole_number("tokens", tokens),
            samples=check_whole_number("samples", samples),
            beams=beams,
            length_penalty=length_penalty,
            stop=stop,
            trace=trace,
        )
        return texts[0] if samples == 1 else texts

    @suggest_keywords
    def stream(
        self,
        prompt: str = "",
        *,
        tokens: int = 100,
        samples: int = 1,
        stop: str | Sequence[str] = (),
        **sampling: Unpack[SamplingOptions],
    ) -> Iterator[list[str]]:
        """The same, piece by piece: each time one (perhaps empty) string per sample."""
        prompt = check_text("prompt", prompt)
        return self.writer.stream(prompt, sampling=Sampling(**sampling), tokens=tokens, samples=samples, stop=stop)

    @suggest_keywords
    def chat(
        self,
        messages: str | Messages,
        *,
        tokens: int = 500,
        samples: int = 1,
        stop: str | Sequence[str] = (),
        **sampling: Unpack[SamplingOptions],
    ) -> str | list[str]:
        """The next message of a conversation, by the model's chat template, or a list of `samples` of them.

        `messages` are dictionaries such as `{"role": "user", "content": "Hello"}`; a string is one message of the user.
        The message ends where the model ends it, or as a text of `generate` does.
        """
        texts = self.chat_writer.reply(
            messages,
            sampling=Sampling(**sampling),
            tokens=check_whole_number("tokens", tokens),
            samples=check_whole_number("samples", samples),
            stop=stop,
        )
        return texts[0] if samples == 1 else texts

    @suggest_keywords
    def stream_chat(
        self,
        messages: str | Messages,
        *,
        tokens: int = 500,
        samples: int = 1,
        stop: str | Sequence[str] = (),
        **sampling: Unpack[SamplingOptions],
    ) -> Iterator[list[str]]:
        """The same, piece by piece: each time one (perhaps empty) string per sample."""
        options = Sampling(**sampling)
        return self.chat_writer.stream(messages, sampling=options, tokens=tokens, samples=samples, stop=stop)

    @suggest_keywords
    def next(self, prompt: str = "", *, top: int = 10) -> list[tuple[str, float]]:
        """The most probable next tokens after a prompt, with their probabilities.

        >>> token, probability = lm.next("The planet")[0]
        """
        return self.writer.next(check_text("prompt", prompt), top=check_whole_number("top", top))

    @suggest_keywords
    def translate(self, text: str | Sequence[str], **searching: Unpack[Searching]) -> str | list[str]:
        """The best translation of a text, or of each of several; an empty text stays empty.

        A beam search with 5 `beams` and a `length_penalty` of 0.6, for at most `tokens` tokens with at least
        `shortest`, in which no `no_repeat` tokens in a row come twice; `trace` is given the tree of each search.
        `translator.translate` gives all that it finds, with scores.
        """
        found = self.translator.translate(check_texts("text", text), **searching)
        best = [each[0].text if each else "" for each in found]
        return best[0] if isinstance(text, str) else best

    @suggest_keywords
    def alignments(
        self,
        source: str | Sequence[str],
        target: str | Sequence[str | Translation],
        *,
        layer: int = -1,
        head: int | None = None,
        batch: int = 32,
    ) -> list[Alignment]:
        """How much each target token attends to each source token, in one `layer` and `head` or their mean."""
        targets = [target] if isinstance(target, str) else list(target)
        return self.aligner.align(check_texts("source", source), targets, layer=layer, head=head, batch=batch)

    @suggest_keywords
    def mix(self, others: Sequence[LanguageModel], *, weights: Sequence[float] | None = None) -> LanguageModel:
        """A linear mixture with other models of the same tokenizer and frame; `weights` in order, this one's first."""
        for other in others:
            if self.text_tokenizer.fingerprint != other.text_tokenizer.fingerprint:
                raise ValueError(
                    f"{other.path or other} cannot be mixed with {self.path or self}: their tokenizers differ; "
                    f"train both with the same tokenizer.json"
                )
        parts = [require(each.model, PredictsNext) for each in (self, *others)]
        for other in others:
            if self.frame != other.frame:
                raise ValueError(
                    f"{other.path or other} cannot be mixed with {self.path or self}: they read a text in other frames "
                    f"(one backwards, or with other special tokens around it); mix models with the same frame"
                )
        return LanguageModel(
            model=InterpolatedModel(parts, weights=weights), tokenizer=self.tokenizer, own_frame=self.frame
        )

    @suggest_keywords
    def learn_mixture(
        self, text: str | Sequence[str], *, batch: int = 16, progress: ReportProgress | None = None
    ) -> list[float]:
        """The weights with which a mixture's parts best predict held-out text, to be given to `mix`."""
        return self.scorer.learn_mixture(check_texts("text", text), batch=batch, progress=progress)
