"""Whisper (`whisper`), with the files that say how it is decoded and how it reads sound."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.interop.huggingface.families.bart import STACK_OPTIONS, STACK_SETTINGS
from lmlab.interop.huggingface.table import Architecture, Family, Setting, Weight, fused, linear
from lmlab.runs.storage import DamagedError, read_json, write_json
from lmlab.tokenizers.processors.sounds import SoundProcessor
from lmlab.tokenizers.speech_tokens import ENGLISH_VOCABULARY, START, TIMES, SpeechTokens, speech_frame

if TYPE_CHECKING:
    from lmlab.models.whisper import WhisperConfig
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.frames import Frame

GENERATION, PREPROCESSOR = "generation_config.json", "preprocessor_config.json"
DECODING = {
    "suppress": "suppress_tokens",
    "suppress_first": "begin_suppress_tokens",
    "alignment_heads": "alignment_heads",
}
"""Our settings of decoding, and their names in `generation_config.json`, or in the `config.json` of old folders."""
SOUND = {
    "rate": "sampling_rate",
    "mels": "feature_size",
    "fft": "n_fft",
    "hop": "hop_length",
    "seconds": "chunk_length",
}
"""Our settings of a sound processor, and their names in `preprocessor_config.json`."""


class SpeechFiles:
    """`generation_config.json` and `preprocessor_config.json`, and the marks around transcripts."""

    def read_settings(self, folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
        """Our settings of decoding; those of old folders stand in their `config.json`."""
        values = {**config, **_table(folder / GENERATION)}
        lists = {ours: values.get(theirs) for ours, theirs in DECODING.items()}
        tokens = {name: [each for each in lists[name] or [] if each >= 0] for name in ("suppress", "suppress_first")}
        return {**tokens, "alignment_heads": lists["alignment_heads"]}

    def read_frame(self, folder: Path, tokenizer: Tokenizer, config: WhisperConfig) -> Frame | None:
        """The marks of the published models; None where the tokenizer has none."""
        if START not in tokenizer.engine.get_vocab():
            return None
        said = _table(folder / GENERATION).get("is_multilingual", config.vocabulary > ENGLISH_VOCABULARY)
        return speech_frame(tokenizer, multilingual=bool(said))

    def read_processor(self, folder: Path, config: WhisperConfig) -> SoundProcessor:
        """The sound processor; a ValueError where its spectrograms do not fit the model."""
        theirs = _table(folder / PREPROCESSOR)
        values = {ours: theirs[name] for ours, name in SOUND.items() if name in theirs}
        values["seconds"] = float(values.get("seconds", config.frames / 100))
        found = SoundProcessor(**{"mels": config.mels, **values})
        if (found.mels, found.frames) != (config.mels, config.frames):
            raise ValueError(
                f"{folder / PREPROCESSOR} gives spectrograms of {found.mels} × {found.frames}, and the model reads "
                f"{config.mels} × {config.frames}: it belongs to another model"
            )
        return found

    def write(
        self, folder: Path, config: WhisperConfig, tokenizer: Tokenizer, frame: Frame, processor: SoundProcessor
    ) -> None:
        """Write the two files, and the numbers of the tokens with which transcripts begin and end."""
        if not processor.pad:
            warnings.warn(
                "this run was trained on recordings without padding; transformers pads them to "
                f"{config.frames / processor.frames_per_second:g} seconds, so its transcripts will differ",
                stacklevel=3,
            )
        tokens = SpeechTokens.of(tokenizer, frame, vocabulary=config.vocabulary)
        ids = {"bos_token_id": tokens.end, "eos_token_id": tokens.end, "pad_token_id": tokens.end}
        ids["decoder_start_token_id"] = tokens.start
        write_json(folder / "config.json", {**read_json(folder / "config.json"), **ids})
        write_json(folder / GENERATION, {**ids, **_generation(config, tokens)})
        if processor.seconds % 1:
            raise ValueError(
                f"windows of {processor.seconds:g} seconds cannot be written: transformers has whole seconds only; "
                "train with --set data.seconds=30"
            )
        sound = {theirs: getattr(processor, ours) for ours, theirs in SOUND.items()}
        sound |= {"chunk_length": round(processor.seconds), "n_samples": config.frames * processor.hop}
        write_json(
            folder / PREPROCESSOR,
            {
                **{"feature_extractor_type": "WhisperFeatureExtractor", "processor_class": "WhisperProcessor"},
                **{**sound, "nb_max_frames": config.frames, "padding_side": "right", "padding_value": 0.0},
                "return_attention_mask": False,
            },
        )
        if tokens.plain is not None:
            names = read_json(folder / "tokenizer_config.json")
            end = tokenizer.show(tokens.end)
            named = {"tokenizer_class": "WhisperTokenizer", "processor_class": "WhisperProcessor", "unk_token": end}
            write_json(folder / "tokenizer_config.json", {**names, **named, "pad_token": end})


def _generation(config: WhisperConfig, tokens: SpeechTokens) -> dict[str, Any]:
    """What `generate` of transformers must know of the tokens."""
    values: dict[str, Any] = {"is_multilingual": bool(tokens.languages), "max_length": config.window}
    values |= {theirs: getattr(config, ours) for ours, theirs in DECODING.items() if getattr(config, ours)}
    if tokens.plain is not None:
        values |= {
            "no_timestamps_token_id": tokens.plain,
            "max_initial_timestamp_index": 50,
            "return_timestamps": False,
        }
    if tokens.languages:
        values["lang_to_id"] = {f"<|{code}|>": token for code, token in tokens.languages.items()}
        values["task_to_id"] = dict(tokens.tasks)
    return values


def _table(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    values = read_json(path)
    if not isinstance(values, dict):
        raise DamagedError(f"{path} is damaged: it is not a table of settings")
    return values


def _stack(side: str) -> tuple[Weight, ...]:
    """The rows of the blocks of one side; keys have no bias."""
    ours, theirs = f"{side}.blocks.{{}}", f"model.{side}.layers.{{}}"
    queries, source = f"{theirs}.self_attn", f"{theirs}.encoder_attn"
    return (
        fused(f"{ours}.attention.query_key_value", *(f"{queries}.{letter}_proj" for letter in "qkv"))[0],
        fused(f"{ours}.attention.query_key_value", *(f"{queries}.{letter}_proj" for letter in "qv"))[1],
        *linear(f"{ours}.attention.projection", f"{queries}.out_proj"),
        *linear(f"{ours}.attention_norm", f"{queries}_layer_norm"),
        *linear(f"{ours}.cross_attention.query", f"{source}.q_proj"),
        fused(f"{ours}.cross_attention.key_value", *(f"{source}.{letter}_proj" for letter in "kv"))[0],
        Weight(f"{ours}.cross_attention.key_value.bias", f"{source}.v_proj.bias"),
        *linear(f"{ours}.cross_attention.projection", f"{source}.out_proj"),
        *linear(f"{ours}.cross_attention_norm", f"{source}_layer_norm"),
        *linear(f"{ours}.feed_forward.expand", f"{theirs}.fc1"),
        *linear(f"{ours}.feed_forward.contract", f"{theirs}.fc2"),
        *linear(f"{ours}.feed_forward_norm", f"{theirs}.final_layer_norm"),
    )


WHISPER = Family(
    kind="whisper",
    model_type="whisper",
    prefix="model.",
    architectures=(Architecture("WhisperForConditionalGeneration"), Architecture("WhisperModel", prefixed=False)),
    settings=(
        *(setting for setting in STACK_SETTINGS if setting.ours not in ("start", "scale", "dropout")),
        Setting("dropout", "dropout", default=0.0),
        Setting("mels", "num_mel_bins", default=80),
        Setting("frames", "max_source_positions", factor=2, default=1500),
        Setting("window", "max_target_positions", default=448),
    ),
    options=STACK_OPTIONS,
    weights=(
        Weight("embedding.weight", "model.decoder.embed_tokens.weight"),
        Weight("encoder.positions", "model.encoder.embed_positions.weight"),
        Weight("decoder.positions.weight", "model.decoder.embed_positions.weight"),
        *linear("encoder.first", "model.encoder.conv1"),
        *linear("encoder.second", "model.encoder.conv2"),
        *linear("encoder.norm", "model.encoder.layer_norm"),
        *linear("decoder.norm", "model.decoder.layer_norm"),
        *_stack("encoder"),
        *_stack("decoder"),
    ),
    copies={"proj_out.weight": "model.decoder.embed_tokens.weight"},
    fixed={"norm": "pre", "source_vocabulary": None, "bias": False, "scale": False, "start": None},
    constants={"scale_embedding": False},
    specials=("<|endoftext|>",),
    boundary="<|endoftext|>",
    unnamed=TIMES + 256,
    files=SpeechFiles(),
)
