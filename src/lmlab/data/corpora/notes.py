"""Music as a corpus: pieces from MIDI files, JSON piano rolls or the built-in tunes, encoded as events or on a grid."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import ClassVar, Literal

from pydantic import Field

from lmlab.data.config import DataConfig, Paths
from lmlab.data.corpora.corpus import Corpus, Processor
from lmlab.data.corpora.preparing import Counter, ReportStage, digest, size_of
from lmlab.data.corpora.sequences import EncodedItem, EncodingSettings, open_sequences
from lmlab.data.corpora.splitting import NAMES, main_fractions
from lmlab.data.corpora.store import open_home
from lmlab.data.readers.files import cache_folder
from lmlab.data.readers.media import ENDINGS
from lmlab.data.readers.music.files import Bad, find_music, identify_tunes, read_music
from lmlab.files import digest_file
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.processors import is_processor, make_processor
from lmlab.tokenizers.processors.notes import MusicTokenizer


class NotesConfig(DataConfig):
    """Pieces of music."""

    PATHS: ClassVar[tuple[str, ...]] = ("notes", "valid", "test")
    what: ClassVar[str] = "music"

    kind: Literal["notes"] = "notes"
    notes: Paths = Field(description="MIDI files, JSON piano rolls, folders, globs, zip files, or builtin:tunes")
    valid: Paths | None = Field(None, description="validation pieces; by default a part of `notes`")
    test: Paths | None = Field(None, description="test pieces; by default a part of `notes`")
    bad: Bad = Field("refuse", description="refuse or skip files that cannot be read")

    def usual_tokenizer(self, of_system: str | None) -> str | None:
        """Events for MIDI files, a grid for piano rolls."""
        if of_system is not None and is_processor(of_system) and of_system != "events":
            return of_system
        named = [path.lower() for path in self.notes]
        return "events" if any(path.endswith((*ENDINGS["notes"], ".zip")) for path in named) else _by_files(self)


def _by_files(config: NotesConfig) -> str:
    files = [path for path in find_music(config.notes) if path is not None]
    return "events" if any(path.name.lower().endswith((*ENDINGS["notes"], ".zip")) for path in files) else "grid"


def prepare(
    config: NotesConfig,
    *,
    processor: str | Processor | None,
    source: str | Tokenizer | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Return the corpus of a recipe's music."""
    tokenizer = as_music_tokenizer(processor, config)
    given = {name: getattr(config, own) for name, own in zip(NAMES, config.PATHS, strict=True)}
    roles = {name: find_music(paths) for name, paths in given.items() if paths is not None}
    report = progress or (lambda stage, done, total: None)
    hashes = {
        role: [digest_file(path) if path else digest(identify_tunes()) for path in files]
        for role, files in roles.items()
    }
    recipe = EncodingSettings(tokenizer, main_fractions(config.split, roles), digest([hashes, config.bad]))

    def encode() -> Iterator[EncodedItem]:
        counter = Counter("reading", size_of(path for files in roles.values() for path in files if path), report)
        for role, files in roles.items():
            for piece in read_music(files, bad=config.bad, report=counter.add):
                yield EncodedItem(piece.name, tokenizer.encode(piece.music), own_split(role, piece.split, roles))

    return open_sequences(open_home(cache_folder()), recipe, encode)


def own_split(role: str, named: str | None, roles: Container[str]) -> str | None:
    """Return the split that an item belongs to for sure; None if it is dealt by the fractions.

    `role` is the split that its file was given for. Splits within a file count where no file was given to hold out.
    """
    if role != "train" or "valid" in roles:
        return role
    return None if "test" in roles else named


def as_music_tokenizer(processor: str | Processor | None, config: NotesConfig) -> MusicTokenizer:
    """Return the tokenizer of music that is named or given; a ValueError if it is one of something else."""
    made = processor if isinstance(processor, MusicTokenizer) else None
    if made is None and (processor is None or is_processor(processor)):
        found = make_processor(str(processor or config.usual_tokenizer(None)))
        made = found if isinstance(found, MusicTokenizer) else None
    if made is None:
        raise ValueError(f"tokenizer {processor!r} does not encode music; give events or grid[:VOICES]")
    return made
