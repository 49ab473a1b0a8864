"""Encoding sentences of mixed length: lmlab without padding against `transformers` with it, interleaved in one process.

    python benchmarks/encoding.py [--sentences 256] [--mean 21] [--batch 32] [--repeats 7] [--threads 2]

The encoder has MiniLM's shape (L6 d384 h12, 1536 inner units, vocabulary 30522) and the same random weights in both.
The lengths are 4 plus a gamma distribution of shape 4, cut at 128. transformers reads batches padded to their longest
sentence, in the given order ("padded") and sorted by length ("sorted"), as sentence encoders do, and of the size that
serves it best; lmlab reads all sentences in one batch with their lengths, since none is padded. Before timing, the
vectors must agree. Printed: sentences/s (median) and ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lmlab.models.bert import Bert, BertConfig
from lmlab.training.allocator import keep_buffers

LAYERS, WIDTH, HEADS, INNER, WINDOW, VOCABULARY = 6, 384, 12, 1536, 512, 30522


def make_models() -> tuple[Bert, nn.Module]:
    """Both models, with the same weights."""
    import transformers

    shape = {"vocabulary": VOCABULARY, "width": WIDTH, "heads": HEADS, "layers": LAYERS, "window": WINDOW}
    ours = Bert(BertConfig.model_validate({**shape, "inner": INNER, "pooler": False, "pairs": False})).eval()
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
        intermediate_size=INNER, max_position_embeddings=WINDOW,
    )  # fmt: skip
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    names = {
        "embedding.weight": "embeddings.word_embeddings.weight",
        "positions.weight": "embeddings.position_embeddings.weight",
        "segments.weight": "embeddings.token_type_embeddings.weight",
    }
    for i in range(LAYERS):
        for our, their in {
            "attention.projection": "attention.output.dense",
            "feed_forward.expand": "intermediate.dense",
            "feed_forward.contract": "output.dense",
        }.items():
            names[f"blocks.{i}.{our}.weight"] = f"encoder.layer.{i}.{their}.weight"
        parts = ours.get_parameter(f"blocks.{i}.attention.query_key_value.weight").chunk(3)
        for part, name in zip(parts, ("query", "key", "value"), strict=True):
            theirs.get_parameter(f"encoder.layer.{i}.attention.self.{name}.weight").data.copy_(part)
    for our, their in names.items():
        theirs.get_parameter(their).data.copy_(ours.get_parameter(our))
    return ours, theirs


def draw_sentences(count: int, mean: float) -> list[Tensor]:
    """Random tokens; only their number matters for the time."""
    torch.manual_seed(0)
    gamma = torch.distributions.Gamma(4.0, 4.0 / (mean - 4))
    lengths = (4 + gamma.sample((count,))).round().clamp(4, 128).long()
    return [torch.randint(1000, VOCABULARY, (length,)) for length in lengths.tolist()]


def pad(sentences: list[Tensor]) -> tuple[Tensor, Tensor]:
    return nn.utils.rnn.pad_sequence(sentences, batch_first=True), torch.tensor([len(s) for s in sentences])


def batches(sentences: list[Tensor], size: int) -> list[tuple[Tensor, Tensor]]:
    return [pad(sentences[at : at + size]) for at in range(0, len(sentences), size)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--mean", type=float, default=21)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_buffers()
    ours, theirs = make_models()
    sentences = draw_sentences(arguments.sentences, arguments.mean)
    given = batches(sentences, arguments.batch)
    together = pad(sentences)
    sorted_ = batches(sorted(sentences, key=len), arguments.batch)

    def read_theirs(parts: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        masks = [(torch.arange(tokens.shape[1]) < lengths[:, None]).long() for tokens, lengths in parts]
        return [
            theirs(tokens, attention_mask=mask).last_hidden_state
            for (tokens, _), mask in zip(parts, masks, strict=True)
        ]

    def read_ours() -> list[Tensor]:
        tokens, lengths = together
        return [ours(tokens, lengths=lengths).hidden]

    contestants: dict[str, Callable[[], list[Tensor]]] = {
        "lmlab": read_ours,
        "transformers, padded": lambda: read_theirs(given),
        "transformers, sorted by length": lambda: read_theirs(sorted_),
    }
    with torch.inference_mode():
        worst = 0.0
        theirs_by_row = [row for part in read_theirs(given) for row in part]
        for mine, other, sentence in zip(read_ours()[0], theirs_by_row, sentences, strict=True):
            worst = max(worst, (mine[: len(sentence)] - other[: len(sentence)]).abs().max().item())
        if worst > 1e-5:
            raise SystemExit(f"the vectors differ by {worst}")
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(arguments.repeats):
            for name, read in contestants.items():
                begin = time.perf_counter()
                read()
                times[name].append(time.perf_counter() - begin)
    tokens = sum(len(sentence) for sentence in sentences)
    padded = sum(tokens.numel() for tokens, _ in given)
    print(
        f"{len(sentences)} sentences, {tokens / len(sentences):.1f} tokens on average, padding makes them "
        f"{padded / tokens:.2f} times as many; largest difference {worst:.1e}"
    )
    median = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in median.items():
        print(
            f"  {name:32}{len(sentences) / seconds:8.0f} sentences/s   lmlab: {seconds / median['lmlab']:5.2f}x   "
            f"({min(times[name]) * 1e3:.0f}-{max(times[name]) * 1e3:.0f} ms)"
        )


if __name__ == "__main__":
    main()
