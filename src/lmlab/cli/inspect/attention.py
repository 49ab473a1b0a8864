"""lmlab inspect attention: where each head looks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, OutputAnalysis, Overwrite
from lmlab.cli.texts import is_stream, text_of


def attention(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of a model with attention.")],
    text: Annotated[str, typer.Argument(help="Text, '-' for standard input; a recording or a picture.")],
    sentence: Annotated[
        str | None, typer.Argument(metavar="[SENTENCE]", help="After a picture: a text about it. (visualbert, vilbert)")
    ] = None,
    translation: Annotated[
        str | None, typer.Option(help="Target of a translator. (default: its own translation)")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Of a translator: encoder, decoder or cross. (default: cross)")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="Plot only this layer, from 0.")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="Plot only this head, from 0.")] = None,
    link: Annotated[
        str | None, typer.Option(metavar="WORD:WORD", help="Rank the heads by their weight between two words.")
    ] = None,
    patch: Annotated[
        str | None, typer.Option(metavar="ROW,COLUMN", help="Of a picture: the patch that attends. (default: [CLS])")
    ] = None,
    rollout: Annotated[bool, typer.Option("--rollout", help="Attention rollout through all layers.")] = False,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Attention of each head: weights, entropy, distance, rollout.

    Examples:

      lmlab inspect attention runs/bert "The animal was tired." -o attention.html

      lmlab inspect attention runs/gpt2 "The cat sat because it was tired." --link it:cat

      lmlab inspect attention runs/en-de "A dog runs." --kind cross --layer 1 -o cross.png

      lmlab inspect attention runs/tiny.en speech.wav -o spectrogram.html

      lmlab inspect attention runs/vit photo.png -o attention.html

      lmlab inspect attention runs/visualbert scene.png "a red circle" -o attention.html

    For each head, the table shows its weights on the same token, the previous, the next and the first one, and on
    special tokens, the mean distance, and the entropy in bits. Attention is not an explanation. Of a speech model the
    page shows the spectrogram, the words with their times, and where in the sound each token attends. Of a model of
    pictures it shows the picture with the weight of each patch, by layer and head, and the rollout through all layers.
    Of a model of texts with pictures it shows, for each word, how much it attends to each region. In place of a file,
    test:3 is the picture of row 3 of the run's own test data.
    """
    from lmlab.analysis.attention import Links, Rollout, read_attention
    from lmlab.analysis.pictures.attention import look, parse_patch, reads_pictures
    from lmlab.analysis.pictures.text_attention import read_picture_text
    from lmlab.analysis.speech_attention import listen
    from lmlab.analysis.view import Viewed
    from lmlab.cli.inspect.display import check_output, open_run, show
    from lmlab.cli.picture_texts import names_picture, shown_picture
    from lmlab.config import suggest
    from lmlab.data.readers.sounds import read_sound
    from lmlab.models.abilities import ReadsRegions, Transcribes, ability

    check_output(output, inputs=[run], overwrite=overwrite)
    if link is not None and link.count(":") != 1:
        raise ValueError(f"--link {link}: give two words that are tokens of the text, as it:cat")
    model = open_run(run, device)
    both = ability(model.model, ReadsRegions) is not None
    if sentence is not None and not both:
        raise ValueError(f"{sentence!r} is one argument too many: {run} reads a text, a picture or a recording alone")
    if ability(model.model, Transcribes) is not None:
        options = {"--translation": translation, "--kind": kind, "--link": link, "--rollout": rollout or None}
        if wrong := [name for name, value in options.items() if value is not None]:
            raise ValueError(f"{wrong[0]} is for models of text; {run} reads a recording: give --layer or --head")
        check_output(output, inputs=[run, text], overwrite=overwrite)
        heard = listen(model.transcriber, read_sound(text))
        show(heard.of(layer=layer, head=head), output=output, json_=json_, subtitle=str(run))
        return
    if reads_pictures(model):
        options = {"--translation": translation, "--kind": kind, "--link": link}
        if wrong := [name for name, value in options.items() if value is not None]:
            raise ValueError(f"{wrong[0]} is for models of text; {run} reads a picture: give --layer or --patch")
        check_output(output, inputs=[run, text], overwrite=overwrite)
        at = None if patch is None else parse_patch(patch)
        pixels = shown_picture(model, run, text).pixels
        seen = look(model, pixels).of(layer=layer, head=head, patch=at, only_rollout=rollout)
        show(seen, output=output, json_=json_, subtitle=str(run))
        return
    if both and (sentence is not None or names_picture(text)):
        options = {"--translation": translation, "--kind": kind, "--link": link, "--patch": patch}
        if wrong := [name for name, value in {**options, "--rollout": rollout or None}.items() if value is not None]:
            raise ValueError(f"{wrong[0]} is not for a text with a picture: give --layer or --head")
        if sentence is None:
            raise ValueError(f'{run} reads a picture with a text: lmlab inspect attention {run} {text} "a red circle"')
        check_output(output, inputs=[run, text], overwrite=overwrite)
        found_both = read_picture_text(model, shown_picture(model, run, text), sentence)
        show(found_both.of(layer=layer, head=head), output=output, json_=json_, subtitle=str(run))
        return
    if patch is not None:
        raise ValueError(f"--patch is for models of pictures, and {run} reads text")
    given = text_of(text).strip() if is_stream(text) else text_of(text)
    maps = read_attention(model, given, target=translation)
    chosen = kind or ("cross" if "cross" in maps else next(iter(maps)))
    if chosen not in maps:
        raise ValueError(f"--kind {chosen}: this model has {', '.join(maps)}{suggest(chosen, maps)}")
    found: Viewed = maps[chosen].of(layer=layer, head=head)
    if rollout:
        found = Rollout.of(maps[chosen])
    if link is not None:
        found = Links.of(maps[chosen], *link.split(":"))
    show(found, output=output, json_=json_, subtitle=str(run))
