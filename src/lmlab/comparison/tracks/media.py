"""Tracks of pictures, recordings and episodes: each is ranked by the metric of its task on test data.

A system takes part in the one track that it is known for. Its score does not depend on a tokenizer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from lmlab.analysis.policies.action_errors import predict_errors
from lmlab.comparison.entries import Entry
from lmlab.comparison.records import TrackScores
from lmlab.comparison.shared_test_data import Tests
from lmlab.comparison.tracks.track import Column, Curve, FigureTexts, RankingMetric, Track, Units, Words
from lmlab.comparison.variants import system_of
from lmlab.data.corpora.episodes import EpisodeSplit
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.readers.clips import SpeechClip
from lmlab.data.readers.media import Picture
from lmlab.language_model import LanguageModel
from lmlab.metrics.captions import CaptionBleu, ExactCaption
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.retrieval import Matching, RankedRecall, chance_of_recall
from lmlab.metrics.statistics import RatioOfSums
from lmlab.metrics.transcription import CharacterErrorRate, WordErrorRate, normalise
from lmlab.models import find
from lmlab.objectives import TASKS
from lmlab.pages.figures.pictures import data_uri
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers.processors.pictures import make_thumbnail

SHOWN = 6
"""Examples of each model on the page."""
SIDE = 72
"""Pixels of the longer side of their pictures."""


class MediaTrack(Track):
    """Systems that are scored on the items of a test split."""

    group = ""  # no word of --models: they are named
    by_tokens = False
    items = "pictures"  # of the test split, in words
    does = ""
    columns: tuple[Column, ...] = ()

    def __init__(self, *, curve: Curve, how: str, seen: str) -> None:
        """`how` explains the score in a sentence; `seen` is the title of the examples."""
        self.curve, self.fields = curve, tuple(each.field for each in self.columns)
        self.tested = f"test {self.items}"
        self.captions = FigureTexts(
            leaderboard=f"{how} {self.score.metric.better.capitalize()} is better. The whisker is the 95% confidence "
            "interval.",
            curves=f"{curve.label.capitalize()} on validation data during training. {curve.better.capitalize()} is "
            "better; a curve that rises or falls further left is cheaper.",
            costs="Each model at the end of its training.",
            samples_title=seen,
            samples=f"The same test {self.items} for each model.",
            passages_title="",
            passages="",
            matrix="How much better the score of the model on the left is than that of the one above.",
        )

    @abstractmethod
    def measure(self, model: LanguageModel, tests: Tests, progress: ReportProgress | None) -> dict[str, Any]:
        """What `predicted` returns, the numbers of the columns, and the examples of a run."""

    def evaluate(self, model: LanguageModel, path: Path, tests: Tests, progress: ReportProgress | None) -> TrackScores:
        return TrackScores(measured=self.measure(model, tests, progress), lossy=False)

    def summarise(self, scores: Sequence[TrackScores], *, same_tokens: bool) -> dict[str, Any]:
        means = {name: float(np.mean([each.measured[name] for each in scores])) for name in self.fields}
        return {**means, "examples": scores[0].measured["examples"]}

    def predicted(self, scores: TrackScores) -> Sequence[Any]:
        found: list[Any] = scores.measured["predicted"]
        return found

    def units(self, tests: Tests) -> Units:
        return Units(self.items, len(self.true(tests)))

    def sample(self, entry: Entry, board: Mapping[str, Any]) -> Markup:
        return Markup("").join(show_example(each) for each in entry.measured["examples"])

    def has(self, system: str) -> bool:
        return self.does in find(system_of(system)).does


class PictureTrack(MediaTrack):
    """A track whose test split has pictures."""

    def split(self, tests: Tests) -> PictureSplit:
        """The test rows."""
        assert isinstance(tests.media, PictureSplit), "a comparison on pictures has test pictures"
        return tests.media


class Classes(PictureTrack):
    """Systems that learn classes of pictures, or answers to questions about them."""

    name = key = "classes"
    read_unit = "examples"
    items = "examples"
    score = RankingMetric(metric=Accuracy(), field="accuracy", label="accuracy", column="accuracy", unit="accuracy")
    columns = (Column("majority", "majority", "{:.1%}"),)
    use = "lmlab predict FOLDER PICTURE"
    words = Words(do="predict a class", does="predicts the classes of the test data")

    def measure(self, model: LanguageModel, tests: Tests, progress: ReportProgress | None) -> dict[str, Any]:
        split, predictor = self.split(tests), model.predictor
        task: Any = predictor.task
        examples = [
            each._replace(media=Picture(task.processor.process(each.media.pixels), each.media.regions))
            for each in split.examples
            if isinstance(each.media, Picture)
        ]
        found = [str(each.value) for each in predictor.predict(examples)]
        true = self.true(tests)
        wrong = [row for row, label in enumerate(true) if label != found[row]]
        shown = [*wrong, *(row for row in range(len(true)) if row not in set(wrong[:SHOWN]))][:SHOWN]
        texts = [f"{examples[row].a} " if examples[row].a else "" for row in range(len(true))]
        return {
            "predicted": found,
            "majority": Counter(true).most_common(1)[0][1] / len(true),
            "examples": [
                make_example(split, row, f"{texts[row]}{found[row]}" + f" (true: {true[row]})" * (row in wrong))
                for row in shown
            ],
        }

    def true(self, tests: Tests) -> Sequence[str]:
        return [str(label) for label in self.split(tests).labels]

    def conclusion(self, entry: Entry) -> str:
        return f"The most frequent class of the test data alone gives {entry.measured['majority']:.3f}."

    def has(self, system: str) -> bool:
        row = find(system_of(system))
        return row.objective["kind"] in TASKS and bool({"images", "captions"} & set(row.reads))


class WrittenCaptions(PictureTrack):
    """Systems that write captions."""

    name = key = does = "captions"
    read_unit = "captions"
    columns = (Column("exact", "exact_match", "{:.1%}"),)
    use = "lmlab caption FOLDER PICTURE"
    words = Words(do="write captions", does="writes the captions of the test pictures")

    def check(self) -> None:
        CaptionBleu().bleu  # noqa: B018 (a ValueError if it is not installed)

    score = RankingMetric(metric=CaptionBleu(), field="bleu", label="BLEU", column="BLEU", unit="BLEU")

    def measure(self, model: LanguageModel, tests: Tests, progress: ReportProgress | None) -> dict[str, Any]:
        split, references = self.split(tests), self.true(tests)
        pictures = list(dict.fromkeys(split.pictures.tolist()))
        found = model.captioner.caption([split.pixels[each] for each in pictures], progress=progress)
        said = [each[0].text if each else "" for each in found]
        rows = [split.pictures.tolist().index(each) for each in pictures[:SHOWN]]
        shown = zip(rows, said, references, strict=False)
        return {
            "predicted": said,
            "exact_match": ExactCaption().score(said, references),
            "examples": [make_example(split, row, f"{text} (true: {own[0]})") for row, text, own in shown],
        }

    def true(self, tests: Tests) -> Sequence[list[str]]:
        return list(self.split(tests).captions().values())

    def conclusion(self, entry: Entry) -> str:
        return f"{entry.measured['exact_match']:.1%} of its captions are exactly a true one."


class Retrieval(PictureTrack):
    """Systems that give pictures and texts vectors in one space."""

    name, key, does = "retrieval", "retrieval", "pictures and texts"
    read_unit = "pairs"
    items = "captions"
    score = RankingMetric(
        metric=RankedRecall(1), field="recall_at_1", label="recall@1", column="recall@1", unit="recall@1"
    )
    columns = (
        Column("recall@5", "recall_at_5", "{:.1%}"),
        Column("picture to text", "picture_to_text_at_1", "{:.1%}"),
        Column("chance", "chance", "{:.1%}"),
    )
    use = 'lmlab find FOLDER "…" PICTURES'
    words = Words(do="find pictures for a text", does="finds the pictures of the test captions")

    def measure(self, model: LanguageModel, tests: Tests, progress: ReportProgress | None) -> dict[str, Any]:
        split, matcher = self.split(tests), model.matcher
        known = self._captions(split)
        pictures = matcher.embed_pixels(split.pixels[each] for each in range(len(split.pixels)))
        texts = matcher.embed_texts(list(known))
        numbers = np.array([known[text] for text in split.fields["caption"]], np.int64)
        matching = Matching(pictures[split.pictures], texts[numbers], split.pictures, numbers)
        ranks, back = matching.text_to_picture(), matching.picture_to_text()
        best = texts[:SHOWN] @ pictures.T
        rows = split.pictures.tolist()
        return {
            "predicted": ranks.best.tolist(),
            "recall_at_5": RankedRecall(5).score(ranks.best.tolist(), ranks.right.tolist()),
            "picture_to_text_at_1": RankedRecall(1).score(back.best.tolist(), back.right.tolist()),
            "chance": chance_of_recall(ranks, 1),
            "examples": [
                make_example(split, rows.index(int(best[number].argmax())), text)
                for text, number in list(known.items())[:SHOWN]
                if int(best[number].argmax()) in rows
            ],
        }

    @staticmethod
    def _captions(split: PictureSplit) -> dict[str, int]:
        return {text: number for number, text in enumerate(dict.fromkeys(split.fields["caption"]))}

    def true(self, tests: Tests) -> Sequence[int]:
        """The number of right pictures of each distinct caption."""
        split = self.split(tests)
        pairs = set(zip(split.fields["caption"], split.pictures.tolist(), strict=True))
        counts = Counter(text for text, _ in pairs)
        return [counts[text] for text in self._captions(split)]

    def conclusion(self, entry: Entry) -> str:
        return f"A random order would reach {entry.measured['chance']:.3f}."


class Transcripts(MediaTrack):
    """Systems that write the text of recordings."""

    name, key, does = "transcripts", "transcripts", "transcripts"
    items = "recordings"
    score = RankingMetric(
        metric=WordErrorRate(), field="word_error_rate", label="word error rate", column="WER", unit="word error rate"
    )
    columns = (Column("CER", "character_error_rate", "{:.1%}"),)
    use = "lmlab transcribe FOLDER FILE.wav"
    words = Words(do="transcribe recordings", does="transcribes the test recordings")

    def clips(self, tests: Tests) -> Sequence[SpeechClip]:
        """The test recordings."""
        assert isinstance(tests.media, tuple), "a comparison on recordings has test recordings"
        return tests.media

    def measure(self, model: LanguageModel, tests: Tests, progress: ReportProgress | None) -> dict[str, Any]:
        transcriber, clips, said = model.transcriber, self.clips(tests), list[str]()
        for number, clip in enumerate(clips, start=1):
            check_cancelled()
            said.append(normalise(transcriber.transcribe(clip.read()).text))
            if progress is not None:
                progress(number, len(clips))
        true = self.true(tests)
        return {
            "predicted": said,
            "character_error_rate": CharacterErrorRate().score(said, true),
            "examples": [{"text": f"{text} (true: {own})"} for text, own in zip(said[:SHOWN], true, strict=False)],
        }

    def true(self, tests: Tests) -> Sequence[str]:
        return [normalise(clip.text) for clip in self.clips(tests)]

    def conclusion(self, entry: Entry) -> str:
        return "Words in lower case, without punctuation; an error rate of 1 is that of an empty transcript."


class Actions(MediaTrack):
    """Systems that predict the actions of episodes."""

    name, key, does = "actions", "actions", "actions"
    read_unit = "actions"
    items = "episodes"
    score = RankingMetric(
        metric=RatioOfSums("lower"),
        field="action_error",
        label="error of an action",
        column="error",
        unit="error of an action",
    )
    use = "lmlab act FOLDER --env NAME"
    words = Words(do="predict actions", does="predicts the actions of the test episodes")

    def split(self, tests: Tests) -> EpisodeSplit:
        """The test episodes."""
        assert isinstance(tests.media, EpisodeSplit), "a comparison on episodes has test episodes"
        return tests.media

    def measure(self, model: LanguageModel, tests: Tests, progress: ReportProgress | None) -> dict[str, Any]:
        split = self.split(tests)
        errors = predict_errors(model.actor, split, progress=progress)
        return {"predicted": np.add.reduceat(errors, split.starts).tolist(), "examples": []}

    def true(self, tests: Tests) -> Sequence[float]:
        lengths: list[float] = self.split(tests).lengths.astype(np.float64).tolist()
        return lengths

    def sizes(self, tests: Tests) -> Sequence[float]:
        return self.true(tests)

    def conclusion(self, entry: Entry) -> str:
        return "How well a model acts is another question: lmlab act FOLDER --env NAME."


MEDIA: dict[str, MediaTrack] = {
    track.key: track
    for track in (
        Classes(
            curve=Curve("valid_accuracy", "accuracy", better="higher", bounds=(0.0, 1.0)),
            how="A model predicts a class, or the answer to a question. Accuracy is the fraction that is right.",
            seen="What they predict: mistakes first",
        ),
        WrittenCaptions(
            curve=Curve("valid_loss", "validation loss"),
            how="A model writes the caption of each picture. BLEU compares its n-grams with those of the true captions "
            "(sacrebleu).",
            seen="What they write",
        ),
        Retrieval(
            curve=Curve("valid_loss", "contrastive loss"),
            how="For each caption, a model ranks all test pictures. Recall@1 is the fraction of captions whose first "
            "picture is a right one.",
            seen="The first picture for a text",
        ),
        Transcripts(
            curve=Curve("valid_loss", "validation loss"),
            how="A model writes the text of recordings. The word error rate is the number of wrong, missing and "
            "additional words, divided by the number of words.",
            seen="What they write",
        ),
        Actions(
            curve=Curve("valid_action_error", "error of an action"),
            how="A model predicts each action of test episodes from what came before, given the return that was "
            "reached. The error is the fraction of wrong actions, or the squared error of continuous ones.",
            seen="",
        ),
    )
}
"""Tracks of data that are not text, by name."""


def make_example(split: PictureSplit, row: int, text: str) -> dict[str, str]:
    """A small picture with a text, for the page."""
    pixels: NDArray[np.uint8] = np.asarray(split.pixels[split.pictures[row]])
    return {"picture": data_uri(make_thumbnail(pixels, SIDE)), "text": text}


def show_example(example: Mapping[str, str]) -> Markup:
    """An example as HTML."""
    picture = (
        Markup('<img src="{}" alt="" width="{}"> ').format(example["picture"], SIDE) if "picture" in example else ""
    )
    return Markup("<p>{}{}</p>").format(picture, example["text"])
