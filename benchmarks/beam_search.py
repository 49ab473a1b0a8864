"""Beam search of encoder-decoders: lmlab against `transformers`, in one process, interleaved.

    python benchmarks/beam_search.py [--rows bart marian] [--beams 4 1] [--repeats 5]

8 sources of 25 random tokens are translated into 25 tokens with random weights, float32, no end of text, so that all
hypotheses are equally long and the length penalty plays no part. `bart` has 4 + 4 layers of width 256, `marian` (our
`transformer`) 6 + 6 of width 512; both 8,192 tokens. lmlab goes through its one beam search, transformers through
`generate(num_beams=k)` with its default cache; one beam is greedy search. The best texts must be the same token by
token. Printed: sentences per second (median), encoder included in the time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lmlab.decoding.search import beam_search
from lmlab.models.bart import Bart, BartConfig
from lmlab.models.transformer import Transformer, TransformerConfig
from seq2seq_training import copy_weights

ROWS = {"bart": (4, 256, 4, 1024), "marian": (6, 512, 8, 2048)}  # layers, width, heads, inner
VOCABULARY, BATCH, LENGTH, START = 8192, 8, 25, 0


def models(row: str) -> tuple[Transformer, nn.Module]:
    """lmlab's model and transformers' with the same weights."""
    import transformers

    layers, width, heads, inner = ROWS[row]
    torch.manual_seed(0)
    ours: Transformer
    shape = {"vocabulary": VOCABULARY, "width": width, "heads": heads, "layers": layers, "inner": inner}
    theirs_shape = {
        "vocab_size": VOCABULARY, "d_model": width, "encoder_layers": layers, "decoder_layers": layers,
        "encoder_attention_heads": heads, "decoder_attention_heads": heads, "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner, "max_position_embeddings": 64, "pad_token_id": 1, "bos_token_id": None,
        "eos_token_id": None, "decoder_start_token_id": START, "forced_eos_token_id": None,
    }  # fmt: skip
    theirs: nn.Module
    if row == "bart":
        ours = Bart(BartConfig.model_validate({**shape, "window": 64}))
        config = transformers.BartConfig(**theirs_shape, activation_function="gelu", scale_embedding=False)
        theirs = transformers.BartForConditionalGeneration(config)
    else:
        ours = Transformer(TransformerConfig.model_validate({**shape, "waves": "halves"}))
        marian = transformers.MarianConfig(**theirs_shape, activation_function="relu", scale_embedding=True)
        theirs = transformers.MarianMTModel(marian)
    for parameter in ours.parameters():  # wider than for learning, so that texts and beams differ
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.05)
    copy_weights(ours, theirs)
    return ours.eval(), theirs.eval()


def contestants(row: str, beams: int) -> dict[str, Callable[[], Tensor]]:
    ours, theirs = models(row)
    source = torch.randint(2, VOCABULARY, (BATCH, LENGTH))
    start = torch.full((BATCH, 1), START)
    mask = torch.ones_like(source)

    def our_texts() -> Tensor:
        with torch.inference_mode():
            state = ours.start(BATCH, source=source)
            found = beam_search(ours, start, tokens=LENGTH, beams=beams, boundary=None, state=state)
        return torch.tensor([hypotheses[0].tokens for hypotheses in found])

    def their_texts() -> Tensor:
        texts: Tensor = theirs.generate(
            source, attention_mask=mask, num_beams=beams, max_new_tokens=LENGTH, do_sample=False
        )
        return texts[:, 1:]

    return {"lmlab": our_texts, "transformers generate": their_texts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--beams", nargs="+", type=int, default=[4, 1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for row in arguments.rows:
        for beams in arguments.beams:
            runs = contestants(row, beams)
            texts = {name: run() for name, run in runs.items()}
            same = {name: (text == texts["lmlab"]).float().mean().item() for name, text in texts.items()}
            times: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(arguments.repeats):
                for name, run in runs.items():
                    begin = time.perf_counter()
                    run()
                    times[name].append(time.perf_counter() - begin)
            layers, width, heads, _ = ROWS[row]
            print(
                f"\n{row} ({layers}+{layers} d{width} h{heads} V{VOCABULARY}), {beams} beams, "
                f"{BATCH} sentences, {LENGTH} tokens in, {LENGTH} out"
            )
            peer = statistics.median(times["transformers generate"])
            for name, values in times.items():
                seconds = statistics.median(values)
                print(
                    f"  {name:26}{BATCH / seconds:9.1f} sentences/s   {peer / seconds:5.2f}x   "
                    f"{same[name]:.1%} the same tokens   ({min(values):.2f}-{max(values):.2f} s)"
                )


if __name__ == "__main__":
    main()
