"""Published sizes, budgets and hardware of models, to compare with estimates."""

from __future__ import annotations

from typing import NamedTuple


class PublishedSize(NamedTuple):
    """One size of a system, as published."""

    parameters: float | None
    source: str
    vocabulary: int
    source_vocabulary: int | None = None  # of a translator with a separate source vocabulary
    tokens: float | None = None
    flops: float | None = None  # as printed
    hardware: str | None = None
    hours: float | None = None
    mean_window: int | None = None  # tokens in the mean row of training, where it is not the window
    by_time: bool = False  # the paper's FLOPs are time x devices x sustained rate, not a count of operations

    @property
    def seconds(self) -> float | None:
        return self.hours * 3600 if self.hours is not None else None


_VASWANI = "Vaswani et al. 2017, tables 2 and 3, section 5.2"
_DEVLIN = "Devlin et al. 2019, section 3 and appendix A.2"
_LIU = "Liu et al. 2019 (RoBERTa), section 3"
_LAN = "Lan et al. 2020, table 1"
_CONNEAU = "Conneau et al. 2020 (XLM-R), section 3"
_FAIRSEQ = "fairseq's release of BART"
_OPENAI = "OpenAI's release of GPT-2"
_RELEASE = "the authors' release of XLNet, counted"
_XLNET_TOKENS = 500_000 * 8192 * 512
_TOUVRON = "Touvron et al. 2023 (LLaMA), tables 2 and 15"
_RADFORD = "Radford et al. 2022 (Whisper), table 1"
_TABLE_D1 = "Brown et al. 2020, tables 2.1 and D.1"

_CLIP = "OpenAI's release of CLIP; data, hardware and days: Radford et al. 2021, sections 2.2 and 2.5"
# 400 million pairs, 32 epochs
_CLIP_PAIRS = 400e6 * 32

# a batch held sentence pairs of about 25,000 source and 25,000 target tokens
_WMT_BATCH = 25_000
# 90% of the steps with 128 tokens and 10% with 512: 246 for the mean token
_BERT_TOKENS = 256 * (900_000 * 128 + 100_000 * 512)
_BERT_WINDOW = 246


def _gpt3(parameters: float, flops: float) -> PublishedSize:
    return PublishedSize(parameters, _TABLE_D1, 50257, tokens=300e9, flops=flops)


PUBLISHED: dict[tuple[str, str], PublishedSize] = {
    ("seq2seq", "sutskever"): PublishedSize(
        384e6, "Sutskever et al. 2014, section 3.4", 80_000, source_vocabulary=160_000
    ),
    ("seq2seq", "rnnsearch"): PublishedSize(
        None, "Bahdanau et al. 2015, section 4.1", 30_000, source_vocabulary=30_000
    ),
    ("seq2seq", "luong"): PublishedSize(None, "Luong et al. 2015, section 4.1", 50_000, source_vocabulary=50_000),
    ("lm-1b", "big"): PublishedSize(1.04e9, "Jozefowicz et al. 2016, table 1 (BIG LSTM + CNN inputs)", 793_471),
    ("transformer", "base"): PublishedSize(
        65e6,
        _VASWANI,
        37_000,
        tokens=100_000 * _WMT_BATCH,
        flops=3.3e18,
        hardware="p100x8",
        hours=12,
        by_time=True,
    ),
    ("transformer", "big"): PublishedSize(
        213e6,
        _VASWANI,
        37_000,
        tokens=300_000 * _WMT_BATCH,
        flops=2.3e19,
        hardware="p100x8",
        hours=84,
        by_time=True,
    ),
    ("music-transformer", "chorales"): PublishedSize(None, "Huang et al. 2018, table 2: JSB Chorales, relative", 130),
    ("bert", "base"): PublishedSize(
        110e6, _DEVLIN, 30522, tokens=_BERT_TOKENS, hardware="tpuv2x16", hours=96, mean_window=_BERT_WINDOW
    ),
    ("bert", "large"): PublishedSize(
        340e6, _DEVLIN, 30522, tokens=_BERT_TOKENS, hardware="tpuv2x64", hours=96, mean_window=_BERT_WINDOW
    ),
    ("visualbert", "base"): PublishedSize(
        None, "Li et al. 2019, section 4: BERT base; parameters are not printed", 30522
    ),
    ("vilbert", "base"): PublishedSize(None, "Lu et al. 2019, section 3.3; parameters are not printed", 30522),
    ("mbert", "base"): PublishedSize(
        179e6, "Hugging Face's list of pretrained models", 119_547, mean_window=_BERT_WINDOW
    ),
    ("xlnet", "base"): PublishedSize(117e6, _RELEASE, 32_000, mean_window=512),
    ("xlnet", "large"): PublishedSize(
        360e6, f"{_RELEASE}; steps: Yang et al. 2019, section 3.1", 32_000, tokens=_XLNET_TOKENS, mean_window=512
    ),
    ("roberta", "base"): PublishedSize(125e6, _LIU, 50265),
    ("roberta", "large"): PublishedSize(355e6, "Liu et al. 2019, section 5", 50265, tokens=500_000 * 8192 * 512),
    ("xlm-r", "base"): PublishedSize(270e6, _CONNEAU, 250_002),
    ("xlm-r", "large"): PublishedSize(550e6, _CONNEAU, 250_002),
    ("albert", "base"): PublishedSize(12e6, _LAN, 30_000),
    ("albert", "large"): PublishedSize(18e6, _LAN, 30_000),
    ("albert", "xlarge"): PublishedSize(60e6, _LAN, 30_000),
    ("albert", "xxlarge"): PublishedSize(235e6, _LAN, 30_000),
    ("electra", "small"): PublishedSize(
        14e6,
        "Clark et al. 2020, tables 1 and 6",
        30522,
        tokens=1_000_000 * 128 * 128,
        flops=1.4e18,
        hardware="v100",
        hours=96,
        mean_window=128,
    ),
    ("electra", "base"): PublishedSize(
        110e6, "Clark et al. 2020, tables 1 and 6", 30522, tokens=766_000 * 256 * 512, flops=6.4e19
    ),
    ("electra", "large"): PublishedSize(
        335e6, "Clark et al. 2020, tables 2 and 6", 30522, tokens=1_750_000 * 2048 * 512, flops=3.1e21
    ),
    ("bart", "base"): PublishedSize(139e6, _FAIRSEQ, 50265),
    ("bart", "large"): PublishedSize(406e6, _FAIRSEQ, 50265),
    ("elmo", "original"): PublishedSize(
        None, "Peters et al. 2018; 93.6M of the parameters are published, the softmax is not", 793_471
    ),
    **{
        ("vit", size): PublishedSize(parameters, "Dosovitskiy et al. 2020, table 1", 0)
        for size, parameters in {"B/32": 86e6, "B/16": 86e6, "L/32": 307e6, "L/16": 307e6, "H/14": 632e6}.items()
    },
    ("clip", "B/32"): PublishedSize(151e6, _CLIP, 49_408, tokens=_CLIP_PAIRS),
    ("clip", "B/16"): PublishedSize(150e6, _CLIP, 49_408, tokens=_CLIP_PAIRS),
    ("clip", "L/14"): PublishedSize(428e6, _CLIP, 49_408, tokens=_CLIP_PAIRS, hardware="v100x256", hours=288),
    ("transformer-xl", "standard"): PublishedSize(151e6, "Dai et al. 2019, table 1", 267_735),
    ("gpt", "117M"): PublishedSize(117e6, "Radford et al. 2018", 40478),
    ("gpt2", "124M"): PublishedSize(124e6, _OPENAI, 50257),
    ("gpt2", "355M"): PublishedSize(355e6, _OPENAI, 50257),
    ("gpt2", "774M"): PublishedSize(774e6, _OPENAI, 50257),
    ("gpt2", "1.5B"): PublishedSize(1.558e9, _OPENAI, 50257),
    ("llama", "7B"): PublishedSize(6.7e9, _TOUVRON, 32_000, tokens=1.0e12),
    ("llama", "13B"): PublishedSize(13.0e9, _TOUVRON, 32_000, tokens=1.0e12),
    ("llama", "33B"): PublishedSize(32.5e9, _TOUVRON, 32_000, tokens=1.4e12),
    ("llama", "65B"): PublishedSize(65.2e9, _TOUVRON, 32_000, tokens=1.4e12, hardware="a100x2048", hours=499.2),
    ("llama", "70B"): PublishedSize(70e9, "Touvron et al. 2023 (Llama 2), table 1", 32_000, tokens=2.0e12),
    ("gpt3", "175B"): PublishedSize(
        174.6e9,
        f"{_TABLE_D1}; hardware and days: Patterson et al. 2021, table 4",
        50257,
        tokens=300e9,
        flops=3.14e23,
        hardware="v100x10000",
        hours=355.2,
    ),
    ("gpt3", "13B"): _gpt3(12.85e9, 2.31e22),
    ("gpt3", "6.7B"): _gpt3(6.66e9, 1.20e22),
    ("gpt3", "2.7B"): _gpt3(2.65e9, 4.77e21),
    ("gpt3", "1.3B"): _gpt3(1.32e9, 2.38e21),
    ("gpt3", "760M"): _gpt3(760e6, 1.37e21),
    ("gpt3", "350M"): _gpt3(356e6, 6.41e20),
    ("gpt3", "125M"): _gpt3(125e6, 2.25e20),
    **{
        ("whisper", size): PublishedSize(parameters, _RADFORD, 51_865)
        for size, parameters in {"tiny": 39e6, "base": 74e6, "small": 244e6, "medium": 769e6, "large": 1550e6}.items()
    },
    ("whisper", "large-v3"): PublishedSize(1550e6, "OpenAI's release of Whisper", 51_866),
    ("whisper", "large-v3-turbo"): PublishedSize(809e6, "OpenAI's release of Whisper", 51_866),
}
