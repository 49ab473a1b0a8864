"""The methods of a LanguageModel for pictures, recordings, music and episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from lmlab.analysis.embedding import Vectors
from lmlab.analysis.pictures.matching import picture_source
from lmlab.analysis.policies.reached_returns import ReachedReturns, summarise
from lmlab.analysis.policies.success_rates import SuccessRates, measure_success
from lmlab.data.readers.music.files import read_prime
from lmlab.data.readers.music.midi import write_midi
from lmlab.data.readers.pictures.decoding import read_picture
from lmlab.data.readers.robot_world import NAME as WORLD
from lmlab.data.readers.sounds import read_sound
from lmlab.decoding.actor import open_environment
from lmlab.decoding.composer import Composition
from lmlab.decoding.sampling import Sampling, SamplingOptions
from lmlab.messages import check_path, check_paths, check_text, check_whole_number, suggest_keywords
from lmlab.progress import ReportProgress
from lmlab.roles import Roles
from lmlab.tokenizers.processors.pictures import PixelArray

if TYPE_CHECKING:
    from lmlab.analysis.pictures.matching import ZeroShot
    from lmlab.analysis.pictures.search import SearchHits


@dataclass(frozen=True, kw_only=True)
class MediaMethods(Roles):
    """What can be done with a model of pictures, recordings, music or episodes."""

    @suggest_keywords
    def embed_pictures(self, paths: str | Path | Sequence[str | Path]) -> Vectors:
        """The unit vectors [N, E] of pictures in files, in the space that they share with texts (CLIP).

        Those of texts are `lm.matcher.embed_texts(texts)`; the cosine of two of them is their product.
        """
        given = check_paths("paths", paths)
        read = self.matcher.embed_sources([picture_source(str(path)) for path in given])
        if read.problems:
            raise ValueError(read.problems[0])
        return read.vectors

    @suggest_keywords
    def find(self, query: str, data: str | Path, *, top: int = 5) -> SearchHits:
        """The pictures of a folder or table that are nearest to a text or to the path of a picture, best first.

        >>> lm.find("a red circle", "pictures").hits[0].name
        """
        from lmlab.analysis.pictures.search import search

        data = check_path("data", data)
        return search(self.matcher, check_text("query", query), str(data), top=check_whole_number("top", top))

    @suggest_keywords
    def zero_shot(
        self, paths: str | Path | Sequence[str | Path], labels: Sequence[str], *, templates: Sequence[str] = ("{}",)
    ) -> ZeroShot:
        """The probability of each label for pictures, without training; `templates` are averaged.

        >>> lm.zero_shot("photo.png", ["cat", "dog"], templates=["a picture of a {}"]).best
        """
        return self.matcher.classify(self.embed_pictures(paths), labels, templates)

    @suggest_keywords
    def caption(
        self, pictures: str | Path | Sequence[str | Path], *, beams: int = 1, length_penalty: float = 0.0
    ) -> str | list[str]:
        """The caption of a picture in a file, or of each of several; one beam is greedy search.

        `captioner.caption` gives all that a search finds, with scores, and `captioner.attention` where it looked.

        >>> lm.caption("photo.png", beams=5)
        """
        pixels = [read_picture(path) for path in check_paths("pictures", pictures)]
        found = self.captioner.caption(pixels, beams=check_whole_number("beams", beams), length_penalty=length_penalty)
        best = [each[0].text if each else "" for each in found]
        return best[0] if isinstance(pictures, (str, Path)) else best

    @suggest_keywords
    def transcribe(
        self, recordings: str | Path | Sequence[str | Path], *, language: str | None = None, beams: int = 1
    ) -> str | list[str]:
        """The text of a recording in a file, or of each of several, of any length; one beam is greedy search.

        `transcriber.transcribe` gives segments and words with their times.

        >>> lm.transcribe("speech.wav")
        """
        given = check_paths("recordings", recordings)
        transcriber, beams = self.transcriber, check_whole_number("beams", beams)
        found = [transcriber.transcribe(read_sound(path), language=language, beams=beams).text for path in given]
        return found[0] if isinstance(recordings, (str, Path)) else found

    @suggest_keywords
    def compose(
        self,
        prime: str | Path | None = None,
        *,
        output: str | Path | None = None,
        tokens: int = 512,
        prime_tokens: int | None = None,
        progress: ReportProgress | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> Composition:
        """Music: new, or the continuation of a MIDI file or piano roll `prime`; written to `output` as MIDI if given.

        `prime_tokens` of the prime are kept, all by default. It is sampled as `generate` does.

        >>> lm.compose(output="tune.mid", seed=7).performance.seconds
        """
        made = self.composer.compose(
            None if prime is None else read_prime(Path(check_path("prime", prime))),
            tokens=check_whole_number("tokens", tokens),
            sampling=Sampling(**sampling),
            most=prime_tokens,
            report=progress or (lambda done, total: None),
        )
        if output is not None:
            if not len(made.performance.pitches):
                raise ValueError(f"{self.path or self} wrote no notes; train it longer, or choose another seed")
            write_midi(made.performance, Path(output))
        return made

    @suggest_keywords
    def draw(
        self,
        given: str | Path | None = None,
        *,
        caption: str | None = None,
        rows: int | None = None,
        count: int = 1,
        progress: ReportProgress | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> list[PixelArray]:
        """`count` pictures [height, width, channels] pixel by pixel: new, or completions of a picture in a file.

        The first `rows` rows of `given` are kept, half of them by default. A run with captions draws `caption`,
        or captions that it writes first. It is sampled as `generate` does.

        >>> lm.draw("seven.png", count=4, temperature=0.9)[0].shape
        """
        return self.painter.draw(
            None if given is None else read_picture(check_path("given", given)),
            caption=None if caption is None else check_text("caption", caption),
            rows=rows,
            count=check_whole_number("count", count),
            sampling=Sampling(**sampling),
            report=progress or (lambda done, total: None),
        )

    @suggest_keywords
    def act(
        self,
        env: str,
        *,
        returns: float | Sequence[float] | None = None,
        episodes: int = 10,
        seed: int = 0,
        progress: ReportProgress | None = None,
    ) -> ReachedReturns | SuccessRates:
        """The returns that a run reaches in an environment, for each return that is asked for; the best by default.

        `env` is a name of gymnasium, such as CartPole-v1, or builtin:cart-pole; for a policy that follows commands it
        is builtin:world, and the result are the success rates of `episodes` missions.

        >>> lm.act("builtin:cart-pole", returns=[100, 500]).table()
        """
        name, episodes = self.path.name if self.path else self.kind, check_whole_number("episodes", episodes)
        if check_text("env", env) == WORLD:
            if returns is not None or seed:
                raise ValueError(f"{WORLD} has missions and no returns: leave out returns and seed")
            return measure_success(self.command_follower, run=name, missions=episodes, progress=progress).rates
        actor = self.actor
        asked = (
            [actor.processor.best] if returns is None else [returns] if isinstance(returns, (int, float)) else returns
        )
        environment = open_environment(env, actor.processor)
        try:
            played = actor.play_all(environment, targets=asked, episodes=episodes, seed=seed, progress=progress)
        finally:
            environment.close()
        return summarise(played, actor.processor, run=name, env=env)
