"""The roles of a model: objects that use it in one way, such as the writer, the scorer and the filler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lmlab.analysis.alignment import Aligner
from lmlab.analysis.embedding import Embedder
from lmlab.analysis.methods import Analyses
from lmlab.analysis.pictures.matching import Matcher
from lmlab.decoding.actor import Actor
from lmlab.decoding.captioner import PictureCaptioner
from lmlab.decoding.chat_writer import ChatWriter
from lmlab.decoding.command_follower import CommandFollower
from lmlab.decoding.composer import Composer
from lmlab.decoding.filler import MaskFiller, filler_of
from lmlab.decoding.kind_view import KindView
from lmlab.decoding.painter import Painter
from lmlab.decoding.scorer import Scorer, pseudo_scorer_of, scorer_of
from lmlab.decoding.speech.transcriber import Transcriber
from lmlab.decoding.token_actor import TokenPolicy
from lmlab.decoding.translator import Translator
from lmlab.decoding.writer import Writer
from lmlab.models import find, frame_of, name_of
from lmlab.models.abilities import (
    ChoosesActions,
    FollowsCommands,
    LearnsNext,
    MatchesPictures,
    PredictsBothWays,
    PredictsNext,
    Transcribes,
    WritesCaptions,
    WritesTarget,
    ability,
    require,
)
from lmlab.models.descriptions import describe_use
from lmlab.tokenizers.chat_template import ChatTemplate
from lmlab.tokenizers.frames import NEXT_TOKEN, Frame, make_frame
from lmlab.tokenizers.processors.captioned_pixels import CaptionedPixels
from lmlab.tokenizers.processors.episode_scaling import EpisodeProcessor
from lmlab.tokenizers.processors.joined import JoinedTokenizer
from lmlab.tokenizers.processors.notes import MusicTokenizer
from lmlab.tokenizers.processors.pictures import PictureProcessor
from lmlab.tokenizers.processors.pixels import Pixels
from lmlab.tokenizers.processors.sounds import SoundProcessor
from lmlab.tokenizers.processors.steps import EpisodeTokens

if TYPE_CHECKING:
    from lmlab.data.corpora.corpus import Processor
    from lmlab.tasks.predicting import Predictor
    from lmlab.tokenizers import Tokenizer

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Roles(Analyses):
    """A model with its tokenizer, ready for each of its uses.

    A role that the model lacks the ability for raises a ValueError that says what to use instead.
    """

    model: Any
    tokenizer: Tokenizer | None
    path: Path | None = None
    source_tokenizer: Tokenizer | None = None
    """The tokenizer of the source, of a translator with two vocabularies."""
    own_frame: Frame | None = None
    """The special tokens around its texts, if the run defines them; else those of the model's kind."""
    own_predictor: Predictor | None = None
    """The model with the head of its task, of a fine-tuned run."""
    chat_template: ChatTemplate | None = None
    """How the messages of a conversation become one text, of a chat model."""
    processor: Processor | None = None
    """What turns data that are not text into the model's inputs: pictures, sound, music."""

    @cached_property
    def kind(self) -> str:
        """The name of its system: of a run, the one that it was trained as (mbert has the class of bert)."""
        from lmlab.runs.storage import read_json

        config = None if self.path is None else self.path / "config.json"
        return name_of(self.model) if config is None or not config.is_file() else str(read_json(config)["kind"])

    @property
    def text_tokenizer(self) -> Tokenizer:
        """The tokenizer; a ValueError where the model reads no text."""
        if self.tokenizer is None:
            raise ValueError(
                f"{name_of(self.model)} has no tokenizer, so it cannot be given text: use `model` itself, or "
                "load a run that was trained on text"
            )
        return self.tokenizer

    @cached_property
    def frame(self) -> Frame:
        """The special tokens around a text when the model reads it."""
        if self.own_frame is not None:
            return self.own_frame
        return frame_of(self.model, self.text_tokenizer, self.source_tokenizer)

    @property
    def predictor(self) -> Predictor:
        """Predicts classes, tags, scores or answers; of a fine-tuned run."""
        if self.own_predictor is None:
            raise ValueError(describe_use(self.path or "RUN", find(self.kind)))
        return self.own_predictor

    def _processor_of(self, kind: type[T], data: str, *, use: str) -> T:
        """The processor; a ValueError where the run has none of this kind."""
        if not isinstance(self.processor, kind):
            raise ValueError(f"{self.path or self} has no processor.json of {data}, so it cannot {use}")
        return self.processor

    @property
    def writer(self) -> Writer:
        """Continues texts; of a model in both directions, from left to right."""
        both = ability(self.model, PredictsBothWays)
        if both is not None:
            tokenizer, (forward, _) = self.text_tokenizer, both.directions()
            return Writer(model=forward, tokenizer=tokenizer, frame=make_frame(NEXT_TOKEN, tokenizer))
        if "tokens" in self.frame.backwards:
            raise ValueError(
                f"{self.path or self} reads backwards: it predicts the text before, not after, a prompt; "
                "generate with a run that was trained without objective.backwards"
            )
        return Writer(model=require(self.model, PredictsNext), tokenizer=self.text_tokenizer, frame=self.frame)

    def as_kind(self, kind: type[T]) -> tuple[PredictsNext, T] | None:
        """Return the model and its tokenizer of a kind of data that is not text, of all that it has learnt.

        None if it has learnt no such data.
        """
        if isinstance(self.processor, kind):
            return require(self.model, PredictsNext), self.processor
        if isinstance(self.processor, JoinedTokenizer):
            model = self.model.model if isinstance(self.model, KindView) else require(self.model, LearnsNext)
            for name, part in self.processor.parts.items():
                if isinstance(part, kind):
                    return KindView(model, self.processor.ids[name]), part
        return None

    @property
    def composer(self) -> Composer:
        """Continues music; a ValueError if the run has not learnt music."""
        found = self.as_kind(MusicTokenizer)
        if found is None:
            raise ValueError(
                f"{self.path or self} has not learnt music; train one: lmlab train gpt2 builtin:tunes -o RUN"
            )
        return Composer(model=found[0], tokenizer=found[1])

    @property
    def painter(self) -> Painter:
        """Draws pictures pixel by pixel; a ValueError if the run has not learnt to."""
        captioned = self.as_kind(CaptionedPixels)
        if captioned is not None:
            return Painter(model=captioned[0], tokenizer=captioned[1])
        found = self.as_kind(Pixels)
        if found is None:
            raise ValueError(
                f"{self.path or self} has not learnt to draw; train one: "
                "lmlab train gpt2 PICTURES --tokenizer pixels:16 -o RUN, or, for captions, "
                "lmlab train gpt2 captions=TABLE -o RUN"
            )
        return Painter(model=found[0], tokenizer=found[1])

    @cached_property
    def chat_writer(self) -> ChatWriter:
        """Answers messages; a ValueError if the model has no chat template."""
        if self.chat_template is None:
            raise ValueError(
                f"{self.path or self} has no chat template, so it continues texts but answers no messages: use "
                "generate without chat. Chat models that are imported from Hugging Face bring a template"
            )
        return ChatWriter(plain=self.writer, template=self.chat_template)

    @property
    def scorer(self) -> Scorer:
        """Gives texts a probability, or a pseudo-log-likelihood."""
        return scorer_of(self.model, self.text_tokenizer, self.frame)

    @property
    def pseudo_scorer(self) -> Scorer:
        """Predicts each token from all others, even if the model gives whole texts a probability."""
        return pseudo_scorer_of(self.model, self.text_tokenizer, self.frame)

    @property
    def filler(self) -> MaskFiller:
        """Fills masked tokens."""
        return filler_of(self.model, self.text_tokenizer, self.frame)

    @property
    def translator(self) -> Translator:
        """Generates a target from a source."""
        others = {
            Transcribes: "recordings, not text: lmlab transcribe RUN FILE.wav",
            WritesCaptions: "pictures, not text: lmlab caption RUN PICTURE",
            FollowsCommands: "pictures with commands, not text: lmlab act RUN --env builtin:world",
        }
        for kind, advice in others.items():
            if ability(self.model, kind) is not None:
                raise ValueError(f"{name_of(self.model)} reads {advice}")
        return Translator(
            model=require(self.model, WritesTarget),
            tokenizer=self.text_tokenizer,
            source_tokenizer=self.source_tokenizer,
            frame=self.frame,
        )

    @property
    def transcriber(self) -> Transcriber:
        """Writes the text of recordings."""
        model = require(self.model, Transcribes)
        processor = self._processor_of(SoundProcessor, "sounds", use="read recordings")
        return Transcriber(
            model=model,
            tokenizer=self.text_tokenizer,
            frame=self.frame,
            processor=processor,
            never=getattr(self.model.config, "suppress", ()),
            never_first=getattr(self.model.config, "suppress_first", ()),
        )

    @property
    def actor(self) -> Actor:
        """Acts in environments."""
        if (found := self.as_kind(EpisodeTokens)) is not None:
            return Actor(model=TokenPolicy(*found), processor=found[1].scales)
        if isinstance(self.model, FollowsCommands):
            raise ValueError("a model that follows commands acts in one environment: give builtin:world")
        model = require(self.model, ChoosesActions)
        processor = self._processor_of(EpisodeProcessor, "episodes", use="act")
        return Actor(model=model, processor=processor)

    @property
    def matcher(self) -> Matcher:
        """Gives pictures and texts vectors in one space: search and zero-shot labels."""
        model = require(self.model, MatchesPictures)
        processor = self._processor_of(PictureProcessor, "pictures", use="read them")
        return Matcher(
            model=model,
            tokenizer=self.text_tokenizer,
            frame=self.frame,
            processor=processor,
            window=int(self.model.window),
        )

    @property
    def captioner(self) -> PictureCaptioner:
        """Writes captions of pictures."""
        model = require(self.model, WritesCaptions)
        processor = self._processor_of(PictureProcessor, "pictures", use="read pictures")
        return PictureCaptioner(model=model, tokenizer=self.text_tokenizer, frame=self.frame, processor=processor)

    @property
    def command_follower(self) -> CommandFollower:
        """Writes the actions that commands call for in pictures."""
        model = require(self.model, FollowsCommands)
        processor = self._processor_of(PictureProcessor, "pictures", use="read pictures")
        return CommandFollower(model=model, tokenizer=self.text_tokenizer, frame=self.frame, processor=processor)

    @property
    def aligner(self) -> Aligner:
        """Aligns source and target tokens by attention."""
        return Aligner(self.translator)

    @property
    def embedder(self) -> Embedder:
        """Gives vectors of texts and tokens; `dataclasses.replace` changes its options."""
        if isinstance(self.model, KindView):
            raise ValueError(
                f"{self.path or self} has learnt several kinds of data, and gives no vectors of texts: use it with "
                "lmlab generate or lmlab score, or train a model on the text alone"
            )
        return Embedder(model=self.model, tokenizer=self.source_tokenizer or self.text_tokenizer, frame=self.frame)
