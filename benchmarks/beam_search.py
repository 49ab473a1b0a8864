"""Beam search of encoder-decoders: lmlab against `transformers` and CTranslate2, in one process, interleaved.

    python benchmarks/beam_search.py [--rows bart marian] [--beams 4 1] [--repeats 5]

8 sources of 25 random tokens are translated into 25 tokens with random weights, in float32, and by lmlab and (where it
is installed) CTranslate2 in int8, too. There is no end of text, so that all hypotheses are equally long and the length
penalty plays no part. `bart` has 4 + 4 layers of width 256, `marian` (our `transformer`) 6 + 6 of width 512; both 8,192
tokens. lmlab goes through its one beam search, transformers through `generate(num_beams=k)` with its default cache; one
beam is greedy search. The best texts of lmlab and transformers in float32 must be the same token by token; those of
CTranslate2 need not be, because it searches in another way. Printed: sentences per second (median), encoder included in
the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.decoding.beam_search import beam_search
from lmlab.models.model import Model
from peers import START, as_names, ctranslate2_models, rounded, same_tokens, same_weights, translator
from timing import make_parser, print_rows, take_turns

ROWS = {
    "bart": {"layers": 4, "width": 256, "heads": 4, "inner": 1024},
    "marian": {"layers": 6, "width": 512, "heads": 8, "inner": 2048},
}
VOCABULARY, BATCH, LENGTH = 8192, 8, 25


def models(row: str) -> tuple[Model, nn.Module]:
    """lmlab's model and transformers' with the same weights."""
    torch.manual_seed(0)
    endless = {"bos_token_id": None, "eos_token_id": None, "forced_eos_token_id": None}
    theirs = translator(row, **ROWS[row], vocabulary=VOCABULARY, pad_token_id=1, **endless).eval()
    for parameter in theirs.parameters():  # wider than for learning, so that texts and beams differ
        if parameter.ndim == 2 and parameter.requires_grad:
            nn.init.normal_(parameter, std=0.05)
    return same_weights(theirs), theirs


def contestants(row: str, beams: int, *, threads: int) -> dict[str, Callable[[], Tensor]]:
    ours, theirs = models(row)
    source = torch.randint(2, VOCABULARY, (BATCH, LENGTH))
    start = torch.full((BATCH, 1), START)
    mask = torch.ones_like(source)

    def our_texts(model: Any) -> Tensor:
        with torch.inference_mode():
            state = model.begin(model.encode(source=source))
            found = beam_search(model, start, tokens=LENGTH, beams=beams, boundary=None, state=state)
        return torch.tensor([hypotheses[0].tokens for hypotheses in found])

    def their_texts() -> Tensor:
        texts: Tensor = theirs.generate(
            source, attention_mask=mask, num_beams=beams, max_new_tokens=LENGTH, do_sample=False
        )
        return texts[:, 1:]

    def engine_texts(engine: Any) -> Tensor:
        found = engine.translate_batch(
            as_names(source), beam_size=beams, max_decoding_length=LENGTH, min_decoding_length=LENGTH
        )
        return torch.tensor([[int(token[1:]) for token in each.hypotheses[0]] for each in found])

    engines = ctranslate2_models(theirs, "BartLoader", threads=threads)
    return {
        "lmlab": partial(our_texts, ours),
        "lmlab int8": partial(our_texts, rounded(ours, "int8")),
        "transformers generate": their_texts,
        **{name: partial(engine_texts, engine) for name, engine in engines.items()},
    }


def compare(row: str, beams: int, *, repeats: int, threads: int) -> None:
    runs = contestants(row, beams, threads=threads)
    same = same_tokens(runs, may_differ=("int8", "bf16", "float32"))
    times = take_turns(runs, repeats=repeats)
    shape = "{layers}+{layers} d{width} h{heads}".format(**ROWS[row])
    texts = f"{BATCH} sentences, {LENGTH} tokens in, {LENGTH} out"
    print(f"\n{row} ({shape} V{VOCABULARY}), {beams} beams, {texts}")
    print_rows(
        times,
        work=BATCH,
        unit="sentences",
        peer="transformers generate",
        note=lambda name, _: f"{same[name]:.1%} the same tokens",
    )


def main() -> None:
    parser = make_parser(__doc__, repeats=5, rows=ROWS)
    parser.add_argument("--beams", nargs="+", type=int, default=[4, 1])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for row, beams in itertools.product(arguments.rows, arguments.beams):
        compare(row, beams, repeats=arguments.repeats, threads=arguments.threads)


if __name__ == "__main__":
    main()
