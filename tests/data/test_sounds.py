"""Recordings: WAV of all widths, bad files in one line, resampling and the log-mel spectrogram against references."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlab.data.readers.clips import make_tones, read_clips
from lmlab.data.readers.sounds import decode_sound, encode_wav, read_sound
from lmlab.tokenizers.processors import load_processor
from lmlab.tokenizers.processors.sounds import SoundProcessor, mel_filters, resample

TONE = (0.5 * np.sin(np.arange(4000) / 9)).astype(np.float32)


def wav(
    data: bytes, *, code: int = 1, bits: int = 16, rate: int = 8000, channels: int = 1, size: int | None = None
) -> bytes:
    block = channels * bits // 8
    head = struct.pack(
        "<4sI4s4sIHHIIHH", b"RIFF", 0, b"WAVE", b"fmt ", 16, code, channels, rate, rate * block, block, bits
    )
    return head + struct.pack("<4sI", b"data", len(data) if size is None else size) + data


@pytest.mark.parametrize("form", ["u1", "i2", "i3", "i4", "f4", "f8"])
def test_wav_of_all_widths(form: str) -> None:
    bits, code = 8 * int(form[1]), 3 if form[0] == "f" else 1
    if code == 3:
        data = TONE.astype(f"<{form}").tobytes()
    elif form == "u1":
        data = np.round(TONE * 128 + 128).astype(np.uint8).tobytes()
    else:
        whole = np.round(TONE.astype(np.float64) * 2 ** (bits - 1)).astype("<i4").view(np.uint8).reshape(-1, 4)
        data = whole[:, : bits // 8].tobytes()
    found = decode_sound(wav(data, code=code, bits=bits), name="a.wav")
    assert found.rate == 8000
    np.testing.assert_allclose(found.samples, TONE, atol=1.01 / 2 ** (bits - 1) if code == 1 else 0)


def test_channels_are_averaged_and_other_chunks_skipped() -> None:
    both = np.stack([TONE, -TONE], 1).astype("<f4").tobytes()
    assert np.abs(decode_sound(wav(both, code=3, bits=32, channels=2), name="a").samples).max() == 0
    content = encode_wav(TONE, 8000)
    listed = content[:12] + struct.pack("<4sI", b"LIST", 3) + b"abc\0" + content[12:]
    assert np.array_equal(decode_sound(listed, name="a").samples, decode_sound(content, name="a").samples)


def test_flac_by_the_extra() -> None:
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, TONE, 8000, format="FLAC")
    np.testing.assert_allclose(decode_sound(file.getvalue(), name="a.flac").samples, TONE, atol=1e-4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (wav(b""), "has no sound"),
        (wav(b"\0\0" * 100, size=4000), "states 0.2 seconds of sound in its header, but has 0.0"),
        (wav(b"\0\0", size=16000 * 36000), "states 36,000.0 seconds"),
        (wav(np.array([0, np.nan], "<f4").tobytes(), code=3, bits=32), "not numbers"),
        (wav(b"\0" * 30, rate=5), "5 samples per second"),
        (wav(b"\0" * 30, channels=500), "damaged WAV file"),
        (encode_wav(TONE, 8000)[:36], "no data chunk"),
        (b"RIFF\0\0\0\0WAVEfmt \x04\0\0\0abcd", "format chunk has 4 bytes"),
        (b"RIFF\0\0\0\0WAVEdata\x04\0\0\0abcd", "comes before its format"),
        (b"hello, this is text", "is not a readable recording|is not a WAV"),
    ],
)
def test_bad_files_in_one_line(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        decode_sound(content, name="bad.wav")
    assert "\n" not in str(error.value)
    assert "object at" not in str(error.value)
    assert "bad.wav" in str(error.value)


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "soundfile", None)
    named = {
        "mu-law samples": wav(b"\0" * 64, code=7, bits=8),
        "MP3": wav(b"\0" * 64, code=85),
        "99": wav(b"", code=99),
    }
    for message, content in {"not a WAV file": b"fLaC....", **named}.items():
        with pytest.raises(ValueError, match=rf"{message}.*pip install 'lmlab\[audio\]'"):
            decode_sound(content, name="a")


def test_mu_law_by_the_extra() -> None:
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, TONE, 8000, format="WAV", subtype="ULAW")
    np.testing.assert_allclose(decode_sound(file.getvalue(), name="a.wav").samples, TONE, atol=0.02)


def check_content(content: bytes) -> None:
    """A file is a finite recording, or an error of one line that names it."""
    message, samples = "", np.zeros(0, np.float32)
    try:
        samples = decode_sound(content, name="the file").samples
    except ValueError as error:
        message = str(error)
    assert np.isfinite(samples).all()
    assert len(samples) > 0 or message.startswith("the file ")
    assert "\n" not in message


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 60), st.integers(0, 255))
def test_damaged_wav_files_are_errors_or_sounds(more: bytes, place: int, value: int) -> None:
    content = bytearray(encode_wav(TONE[:50], 8000) + more)
    content[place] = value
    check_content(bytes(content))


NUMBERS = st.one_of(st.integers(0, 70), st.sampled_from([2**15, 2**16 - 1]))
SIZES = st.one_of(st.integers(0, 50), st.sampled_from([2**31, 2**32 - 2, 2**32 - 1]))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([b"fmt ", b"data", b"LIST", b"fact"]), SIZES, st.binary(max_size=40)), max_size=4
    ),
    st.tuples(st.sampled_from([1, 3, 7, 0xFFFE]), NUMBERS, st.sampled_from([0, 1, 8000, 2**32 - 1]), NUMBERS, NUMBERS),
    st.binary(max_size=64),
)
def test_invented_wav_files_are_errors_or_sounds(
    chunks: list[tuple[bytes, int, bytes]], form: tuple[int, int, int, int, int], data: bytes
) -> None:
    code, channels, rate, block, bits = form
    parts = [name + struct.pack("<I", size) + content for name, size, content in chunks]
    parts.append(b"fmt " + struct.pack("<IHHIIHH", 16, code, channels, rate, 0, block, bits))
    parts.append(b"data" + struct.pack("<I", len(data)) + data)
    check_content(b"RIFF\0\0\0\0WAVE" + b"".join(parts))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_errors_or_sounds(content: bytes) -> None:
    check_content(content)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 44101, 48000])
def test_resampling_keeps_what_is_below_the_edge(rate: int) -> None:
    """Sines of known frequency, and scipy's polyphase filter."""
    times = np.arange(rate // 2) / rate
    found = resample(
        torch.from_numpy(np.sin(2 * np.pi * 700 * times) + np.cos(2 * np.pi * 3000 * times)).float(), rate, 16000
    )
    after = np.arange(len(found)) / 16000
    expected = np.sin(2 * np.pi * 700 * after) + np.cos(2 * np.pi * 3000 * after)
    np.testing.assert_allclose(found[300:-300], expected[300:-300], atol=1e-4)


def test_resampling_is_near_scipys() -> None:
    signal = pytest.importorskip("scipy.signal")
    noise = signal.resample_poly(np.random.default_rng(0).normal(0, 0.1, 3000), 3, 1)  # nothing near the edge
    found = resample(torch.from_numpy(noise).float(), 24000, 16000).numpy()
    np.testing.assert_allclose(found[100:-100], signal.resample_poly(noise, 2, 3)[100:-100], atol=2e-3)


def test_frequencies_above_the_edge_are_removed() -> None:
    high = torch.sin(2 * np.pi * 12000 * torch.arange(24000).double() / 48000).float()
    assert float(resample(high, 48000, 16000)[200:-200].abs().max()) < 1e-3


@pytest.mark.parametrize("mels", [80, 128])
def test_filters_are_those_of_the_reference(mels: int, shared_data: Callable[[str], Path]) -> None:
    reference = np.load(shared_data("whisper") / "mel_filters.npz", allow_pickle=False)[f"mel_{mels}"]
    np.testing.assert_allclose(mel_filters(mels), reference, atol=1e-8)


def test_spectrogram_has_the_golden_statistics(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("whisper")
    golden = json.loads((folder / "golden.json").read_text())
    found = SoundProcessor().process(*read_sound(folder / "jfk.wav"))
    assert found.shape == (80, 3000)
    assert float(found.mean()) == pytest.approx(golden["log_mel_mean"], abs=2e-6)
    assert float(found.flat[0]) == pytest.approx(golden["log_mel_first"], abs=2e-6)


def test_silence_has_a_spectrogram() -> None:
    found = SoundProcessor(pad=False).process(np.zeros(16000, np.float32), 16000)
    assert found.shape == (80, 100)
    assert np.isfinite(found).all()


def test_a_processor_is_saved_and_loaded(tmp_path: Path) -> None:
    processor = SoundProcessor(mels=40, pad=False)
    processor.save(tmp_path / "processor.json")
    assert load_processor(tmp_path) == processor
    for content in (
        "[]",
        '{"kind": "sounds", "colour": 3}',
        '{"kind": "smells"}',
        '{"kind": "sounds", "mels": "many"}',
    ):
        (tmp_path / "processor.json").write_text(content)
        with pytest.raises(ValueError, match=r"processor\.json"):
            load_processor(tmp_path)


def test_a_table_of_clips(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(encode_wav(TONE, 8000))
    table = tmp_path / "clips.tsv"
    table.write_text("path\ttext\na.wav\tA  tone.\n")
    (clip,) = read_clips(str(table))
    assert (clip.text, clip.read().rate) == ("A tone.", 8000)
    for content, message in {
        "name\ttext\n": "has the columns name, text",
        "path\ttext\nb.wav\thello\n": "line 2: .*b.wav does not exist",
        "path\ttext\na.wav\n": "line 2: 1 columns",
        "path\ttext\na.wav\t \n": "line 2: the path or the text is empty",
    }.items():
        table.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_clips(str(table))


def test_clips_in_a_zip(shared_data: Callable[[str], Path]) -> None:
    clips = read_clips(str(shared_data("asterisk_speech") / "clips.tsv"))
    assert len(clips) == 568
    assert clips[0].text == "Activated."
    assert clips[0].read().rate == 8000


def test_tones_are_always_the_same() -> None:
    one, other = (list(make_tones(8)) for _ in range(2))
    assert all(np.array_equal(a.read().samples, b.read().samples) for a, b in zip(one, other, strict=True))
    assert [len(clip.text.split()) for clip in one[:4]] == [1, 2, 3, 4]
