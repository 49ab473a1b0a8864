"""lmlab compose: music from a run that has learnt music."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmlab.cli.options import Device, MinP, Overwrite, Run, SamplingSeed, Temperature, TopK, TopP
from lmlab.cli.texts import check_outputs

if TYPE_CHECKING:
    from lmlab.decoding.composer import Composer, Composition


def compose(
    run: Run,
    prime: Annotated[Path | None, typer.Option(help="MIDI file or piano roll to continue.")] = None,
    prime_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of the prime to keep. (default: all)")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="MIDI file to write.")] = Path("out.mid"),
    picture: Annotated[Path | None, typer.Option(help="Piano roll with attention arcs: .svg or .png.")] = None,
    tokens: Annotated[int, typer.Option("-n", "--tokens", min=1, help="Maximum number of tokens to generate.")] = 512,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    seed: SamplingSeed = 0,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Compose music with a run, as a MIDI file and a picture.

    Examples:

      lmlab compose runs/tunes -o tune.mid

      lmlab compose runs/tunes -o tune.mid --picture tune.svg --temperature 0.9 --seed 7

      lmlab compose runs/tunes --prime theme.mid --prime-tokens 64 -o continued.mid

    The piece ends after --tokens, or where the model ends it. In the picture the notes of the prime are grey, and arcs
    lead from notes to the earlier notes that they attend to most, over all layers and heads.
    """
    from lmlab.cli.console import progress_bar
    from lmlab.data.readers.music.files import read_prime
    from lmlab.data.readers.music.midi import import_symusic, write_midi
    from lmlab.decoding.sampling import Sampling
    from lmlab.language_model import load
    from lmlab.training.devices import choose_device

    check_outputs({"--output": output, "--picture": picture}, inputs=[run, prime], overwrite=overwrite)
    if picture is not None and picture.suffix not in (".svg", ".png"):
        raise ValueError(f"--picture {picture}: give a name that ends with .svg or .png")
    import_symusic()
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    composer = load(run, device=choose_device(device)).composer
    music = None if prime is None else read_prime(prime)
    with progress_bar("composing") as progress:
        made = composer.compose(music, tokens=tokens, sampling=sampling, most=prime_tokens, report=progress)
    if not len(made.performance.pitches):
        raise ValueError(f"{run} wrote no notes; train it longer, or choose another --seed")
    write_midi(made.performance, output)
    if picture is not None:
        _draw(composer, made, picture)
    ended = "the model ended the piece" if made.ended else "length limit reached"
    count, seconds = len(made.performance.pitches), made.performance.seconds
    typer.echo(f"{output}: {count:,} notes, {seconds:.1f} s, {len(made.ids) - made.given:,} tokens; {ended}")


def _draw(composer: Composer, made: Composition, path: Path) -> None:
    from lmlab.files import write_text
    from lmlab.pages.figures import save_png
    from lmlab.pages.figures.piano_roll import PianoRoll, RollArc, RollNote
    from lmlab.pages.figures.svg import standalone

    spans = composer.tokenizer.spans(made.ids)
    begins = spans[made.given].seconds if 0 < made.given < len(spans) else 0.0
    piece = made.performance
    rows = zip(piece.starts.tolist(), piece.ends.tolist(), piece.pitches.tolist(), strict=True)
    notes = [RollNote(start, end, pitch, start < begins) for start, end, pitch in rows]
    arcs = [
        RollArc(spans[arc.later].seconds, spans[arc.earlier].seconds, arc.weight) for arc in composer.find_arcs(made)
    ]
    figure = PianoRoll("Piano roll", notes, arcs)
    if path.suffix == ".png":
        save_png([figure], path)
    else:
        write_text(path, standalone(figure.html()))
