"""Transcribing with the same weights: lmlab, transformers' pipeline and CTranslate2, in one process, interleaved.

    python benchmarks/transcription.py CTRANSLATE2_FOLDER RECORDING.wav [--beams 1] [--repeats 5] [--threads 2]

CTRANSLATE2_FOLDER has a published Whisper (`model.bin`, `config.json`, `tokenizer.json`), such as tiny.en; RECORDING is
at most 30 seconds long. lmlab reads a run that is converted from the folder; transformers reads the same run as it was
written for Hugging Face, in float32; CTranslate2 reads the folder itself, in float32 and in int8, where the package
`ctranslate2` is installed. All start from samples in memory: spectrogram, encoder, decoder and text are in the time,
reading the file and loading the model are not. CTranslate2 gets lmlab's spectrogram, since it has none of its own. The
texts are printed: they must be the same in float32.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lmlab
from lmlab.data.readers.media import Sound
from lmlab.data.readers.sounds import read_sound
from lmlab.decoding.speech.transcriber import Transcriber
from lmlab.interop.ctranslate2 import import_ctranslate2
from lmlab.interop.huggingface import export_run
from timing import make_parser, print_rows, take_turns


def main() -> None:
    parser = make_parser(__doc__, repeats=5)
    parser.add_argument("folder", type=Path)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--beams", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    sound = read_sound(given.recording)
    with tempfile.TemporaryDirectory() as home:
        run, theirs = Path(home, "run"), Path(home, "theirs")
        import_ctranslate2(given.folder, run)
        export_run(run, theirs)
        transcriber = lmlab.load(run).transcriber
        seconds = len(sound.samples) / sound.rate
        if seconds > transcriber.processor.seconds:
            raise SystemExit(
                f"{given.recording} is {seconds:.1f} s long: give at most {transcriber.processor.seconds:g}"
            )
        runners: dict[str, Callable[[], str]] = {
            "lmlab": lambda: transcriber.transcribe(sound, beams=given.beams).text,
            "transformers": pipeline(theirs, transcriber, sound, given.beams),
            **ctranslate2_runners(given.folder, transcriber, sound, beams=given.beams, threads=given.threads),
        }
        for name, transcribe in runners.items():
            print(f"{name}: {transcribe()}", flush=True)
        times = take_turns(runners, repeats=given.repeats)
    print_rows(times, work=seconds, unit="seconds of sound", peer="transformers")


def pipeline(folder: Path, transcriber: Transcriber, sound: Sound, beams: int) -> Callable[[], str]:
    """transformers' pipeline for speech recognition."""
    import transformers

    recognize: Any = transformers.pipeline("automatic-speech-recognition", model=str(folder), device="cpu")
    samples = transcriber.processor.resample(sound.samples, sound.rate).numpy()

    def run() -> str:
        given = {"raw": samples, "sampling_rate": transcriber.processor.rate}
        return str(recognize(given, generate_kwargs={"num_beams": beams})["text"]).strip()

    return run


def ctranslate2_runners(
    folder: Path, transcriber: Transcriber, sound: Sound, *, beams: int, threads: int
) -> dict[str, Callable[[], str]]:
    """CTranslate2 in two precisions; none where it is not installed."""
    try:
        import ctranslate2
    except ImportError:
        print("ctranslate2 is not installed, so it is left out")
        return {}
    prompt = transcriber.tokens.prompt(language="en", task="transcribe", times=False)

    def make(precision: str) -> Callable[[], str]:
        model = ctranslate2.models.Whisper(str(folder), device="cpu", compute_type=precision, intra_threads=threads)

        def run() -> str:
            samples = transcriber.processor.resample(sound.samples, sound.rate)
            features = np.ascontiguousarray(transcriber.processor.spectrogram(samples)[None].numpy())
            (found,) = model.generate(ctranslate2.StorageView.from_array(features), [prompt], beam_size=beams)
            return transcriber.tokenizer.decode(found.sequences_ids[0]).strip()

        return run

    return {f"CTranslate2 {precision}": make(precision) for precision in ("float32", "int8")}


if __name__ == "__main__":
    main()
