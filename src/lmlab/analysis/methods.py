"""The analyses as methods of a LanguageModel; each returns a record with a table, figures and notes (view.py)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from lmlab.messages import ArgumentError, suggest, suggest_keywords

if TYPE_CHECKING:
    from lmlab.analysis.attention import Attention
    from lmlab.analysis.attribution import Attribution
    from lmlab.analysis.bias import Bias
    from lmlab.analysis.cells.search import CellSearch
    from lmlab.analysis.errors import Errors
    from lmlab.analysis.forward_pass.read import ForwardPass
    from lmlab.analysis.minimal_pairs import MinimalPairs
    from lmlab.analysis.neighbours import Neighbours
    from lmlab.analysis.pictures.attention import PictureAttention
    from lmlab.analysis.pictures.text_attention import PictureTextAttention
    from lmlab.analysis.surprisal import Surprisals
    from lmlab.data.readers.media import Picture
    from lmlab.decoding.scorer import Scorer


class Analyses:
    """Analyses of a model; a ValueError says what is needed where the model lacks the ability."""

    @property
    def scorer(self) -> Scorer:
        raise NotImplementedError

    @overload
    def attention(
        self,
        text: str,
        *,
        picture: None = ...,
        translation: str | None = ...,
        kind: str | None = ...,
        layer: int | None = ...,
        head: int | None = ...,
    ) -> Attention: ...

    @overload
    def attention(
        self,
        text: str = ...,
        *,
        picture: str | Path | Picture,
        layer: int | None = ...,
        head: int | None = ...,
    ) -> PictureAttention | PictureTextAttention: ...

    @suggest_keywords
    def attention(
        self,
        text: str = "",
        *,
        picture: str | Path | Picture | None = None,
        translation: str | None = None,
        kind: str | None = None,
        layer: int | None = None,
        head: int | None = None,
    ) -> Attention | PictureAttention | PictureTextAttention:
        """The attention weights of every head over a text; `kind` is encoder, decoder or cross, of a translator.

        With a `picture`: over its patches (vit, clip), or between it and the text (visualbert, vilbert).

        >>> lm.attention("The cat sat because it was tired.").weights.shape  # layers, heads, queries, keys
        """
        from lmlab.analysis.attention import read_attention

        if picture is not None:
            return self._picture_attention(picture, text).of(layer=layer, head=head)
        maps = read_attention(self, text, target=translation)
        chosen = kind or ("cross" if "cross" in maps else next(iter(maps)))
        if chosen not in maps:
            raise ArgumentError("kind", chosen, f"this model has {', '.join(maps)}{suggest(chosen, maps)}")
        return maps[chosen].of(layer=layer, head=head)

    def _picture_attention(self, picture: str | Path | Picture, text: str) -> PictureAttention | PictureTextAttention:
        from lmlab.analysis.pictures.attention import look, reads_pictures
        from lmlab.analysis.pictures.text_attention import open_picture, read_picture_text

        if reads_pictures(self):
            return look(self, open_picture(self, picture).pixels)
        if not text.strip():
            raise ArgumentError("text", repr(text), "give a sentence about the picture")
        return read_picture_text(self, picture, text)

    @suggest_keywords
    def forward_steps(self, text: str, *, position: int | None = None, temperature: float = 1.0) -> ForwardPass:
        """The forward pass step by step, from tokens to the prediction after (at a mask: of) the token at `position`.

        `explain` says where a number comes from: the largest terms of its sum, each with the numbers in it.

        >>> steps = lm.forward_steps("The cat sat")
        >>> steps.explain(f"logits:{steps.candidates()[0].token}").terms[0]
        """
        from lmlab.analysis.forward_pass.read import read_forward

        return read_forward(self, text, position=position, temperature=temperature)

    @suggest_keywords
    def surprisal(self, text: str | Sequence[str], *, by_token: bool = False, batch: int = 16) -> Surprisals:
        """The surprisal of each word of a text in bits, −log₂ P(word | context), or of each token.

        >>> [(word.word, word.bits) for word in lm.surprisal("The keys are here.").texts[0].words]
        """
        from lmlab.analysis.surprisal import read_surprisals

        return read_surprisals(self, text, by_token=by_token, batch=batch)

    @suggest_keywords
    def attribution(self, text: str, *, prediction: str | None = None) -> Attribution:
        """How much each token raises or lowers the probability of a prediction: gradient × input.

        >>> lm.attribution("The keys to the cabinet", prediction="are").table()
        """
        from lmlab.analysis.attribution import attribute

        return attribute(self, text, prediction=prediction)

    @suggest_keywords
    def neighbours(self, words: str | Sequence[str], *, top: int = 10) -> Neighbours:
        """The nearest tokens of a word by their embeddings; of three words a, b, c the answer to a : b = c : ?

        >>> lm.neighbours("king", top=5).neighbours
        """
        from lmlab.analysis.neighbours import find_neighbours

        return find_neighbours(self, words, top=top)

    @suggest_keywords
    def minimal_pairs(
        self, pairs: str | Path, *, region: str | None = None, limit: int | None = None, batch: int = 64
    ) -> MinimalPairs:
        """How often the right sentence of a pair has the higher probability; `limit` pairs of each paradigm.

        >>> lm.minimal_pairs("BLiMP.zip", limit=100).lead()
        """
        from lmlab.analysis.minimal_pairs import compare_pairs
        from lmlab.analysis.pair_sets import read_pairs

        given = read_pairs(Path(pairs))
        return compare_pairs(self, given if limit is None else given.first(limit), region=region, batch=batch)

    @suggest_keywords
    def cells(self, text: str, *, find: str, parts: Sequence[str] = (), top: int = 20) -> CellSearch:
        """The units that best detect a property of a text: quotes, brackets, line, capitals or if.

        >>> lm.cells(novel, find="quotes").table()
        """
        from lmlab.analysis.cells.properties import find_property
        from lmlab.analysis.cells.search import search_cells

        return search_cells(self, text, find_property(find), name=find, parts=parts, top=top)

    @suggest_keywords
    def bias(self, templates: str | Path | None = None, *, batch: int = 64) -> Bias:
        """Which of two groups is more probable with each word, by templates of a TOML file.

        >>> lm.bias().table()
        """
        from lmlab.analysis.bias import measure_bias, read_templates

        return measure_bias(self, read_templates(templates), batch=batch)

    @suggest_keywords
    def errors(self, texts: str | Sequence[str], *, tokens: int = 80, seed: int = 0, plain: bool = False) -> Errors:
        """Loops, copies and inventions on texts, and unless `plain` on scrambled and repeated ones as well.

        >>> translator.errors(["There is a paper jam."]).table()
        """
        from lmlab.analysis.errors import find_errors

        given = [texts] if isinstance(texts, str) else texts
        return find_errors(self, given, tokens=tokens, seed=seed, provoked=not plain)
