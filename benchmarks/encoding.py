"""Encoding sentences of mixed length: lmlab without padding against `transformers` with it, interleaved in one process.

    python benchmarks/encoding.py [--sentences 256] [--mean 21] [--batch 16 32 64] [--repeats 7] [--threads 2]

The encoder has MiniLM's shape (L6 d384 h12, 1536 inner units, vocabulary 30522) and the same random weights in both.
The lengths are 4 plus a gamma distribution of shape 4, cut at 128. transformers reads batches padded to their longest
sentence, in the given order ("padded") and sorted by length ("sorted"), as sentence encoders do, each at several
sizes, and the best of these counts; lmlab reads all sentences in one batch with their lengths, since none is
padded. Before timing, the vectors must agree. Printed: sentences/s (median), and the ratios to the best batches sorted
by length and to the best padded in the given order.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from lmlab.models.model import Model
from lmlab.training.devices import keep_buffers
from peers import same_weights
from timing import make_parser, print_rows, take_turns

LAYERS, WIDTH, HEADS, INNER, WINDOW, VOCABULARY = 6, 384, 12, 1536, 512, 30522


def make_models() -> tuple[Model, nn.Module]:
    """Both models, with the same weights."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
        intermediate_size=INNER, max_position_embeddings=WINDOW,
    )  # fmt: skip
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    return same_weights(theirs), theirs


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


def read_theirs(model: nn.Module, parts: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    masks = [(torch.arange(tokens.shape[1]) < lengths[:, None]).long() for tokens, lengths in parts]
    return [
        model(tokens, attention_mask=mask).last_hidden_state for (tokens, _), mask in zip(parts, masks, strict=True)
    ]


def greatest_difference(ours: Tensor, theirs: list[Tensor], sentences: list[Tensor]) -> float:
    """Between the vectors of the two, at real tokens."""
    rows = [row for part in theirs for row in part]
    pairs = zip(ours, rows, map(len, sentences), strict=True)
    return max((mine[:length] - other[:length]).abs().max().item() for mine, other, length in pairs)


def main() -> None:
    parser = make_parser(__doc__, repeats=7)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--mean", type=float, default=21)
    parser.add_argument("--batch", nargs="+", type=int, default=[16, 32, 64], help="sizes for transformers")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_buffers()
    ours, theirs = make_models()
    sentences = draw_sentences(arguments.sentences, arguments.mean)
    together, lengths = pad(sentences)
    padded = {f"transformers, padded, {size} a batch": batches(sentences, size) for size in arguments.batch}
    ordered = sorted(sentences, key=len)
    by_length = {f"transformers, sorted, {size} a batch": batches(ordered, size) for size in arguments.batch}
    contestants: dict[str, Callable[[], list[Tensor]]] = {
        "lmlab": lambda: [ours(together, lengths=lengths).hidden],
        **{name: partial(read_theirs, theirs, parts) for name, parts in (padded | by_length).items()},
    }
    with torch.inference_mode():
        vectors = contestants["lmlab"]()[0]
        worst = max(greatest_difference(vectors, contestants[name](), sentences) for name in padded)
        if worst > 1e-5:
            raise SystemExit(f"the vectors differ by {worst}")
        times = take_turns(contestants, repeats=arguments.repeats)
    middle = {name: statistics.median(values) for name, values in times.items()}
    best_padded, best_sorted = (min(names, key=middle.__getitem__) for names in (padded, by_length))
    tokens = len(torch.cat(sentences))
    more = sum(part.numel() for part, _ in padded[best_padded]) / tokens
    print(
        f"{len(sentences)} sentences, {tokens / len(sentences):.1f} tokens on average, padding makes them "
        f"{more:.2f} times as many; largest difference {worst:.1e}\n"
        f"ratios to: {best_sorted}; {best_padded}"
    )
    print_rows(
        times,
        work=len(sentences),
        unit="sentences",
        peer=best_sorted,
        note=lambda _, seconds: f"{middle[best_padded] / seconds:5.2f}x",
    )


if __name__ == "__main__":
    main()
