"""Runs to and from word vectors in the text formats of word2vec and GloVe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from lmlab.interop.staging import staged
from lmlab.models.model import ReadsLetters
from lmlab.models.word2vec import Word2Vec, Word2VecConfig
from lmlab.runs.model_files import load_model, model_tensors, write_config
from lmlab.runs.storage import write_manifest, write_tensors
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.engines import END_OF_LINE, UNKNOWN, word_engine
from lmlab.tokenizers.word_vectors import WordVectors, read_word_vectors, write_word_vectors


def vectors_of(run: str | Path) -> WordVectors:
    """The embeddings of a run's tokens: the vectors of word2vec, or what enters the first layer of a network."""
    model, tokenizer = load_model(Path(run))
    embedding = getattr(getattr(model, "main", model), "embedding", None)
    if isinstance(model, ReadsLetters):
        raise ValueError(
            f"{run} reads words by their characters and has no table of word vectors; lmlab embed {run} FILE gives "
            "vectors of texts"
        )
    if not isinstance(embedding, nn.Embedding) or tokenizer is None:
        raise ValueError(f"{run} has no token vectors; use a network that was trained on text")
    tokens = [tokenizer.engine.id_to_token(token) or "" for token in range(tokenizer.vocabulary)]
    return WordVectors(tokens, embedding.weight[: len(tokens)].detach().float().numpy())


def export_vectors(run: Path, path: Path, *, header: bool = True, overwrite: bool = False) -> None:
    """Write the vectors of a run's words as text, the unknown word and the line end left out."""
    if path.exists() and (path.is_dir() or not overwrite):
        raise ValueError(f"{path} exists already; choose another name, or replace a file with --overwrite")
    found = vectors_of(run)
    kept = [
        number
        for number, word in enumerate(found.words)
        if word not in ("", UNKNOWN, END_OF_LINE) and not any(letter.isspace() for letter in word)
    ]
    write_word_vectors(WordVectors([found.words[number] for number in kept], found.vectors[kept]), path, header=header)


def import_vectors(path: Path, run: Path, *, overwrite: bool = False) -> None:
    """Make a word2vec run of a file of word vectors; the vector of unknown words is the mean of all, unless given."""
    found = read_word_vectors(path)
    if not len(found.words):
        raise ValueError(f"{path} contains no word vectors: it is empty")
    if twice := [word for number, word in enumerate(found.words) if found.numbers[word] != number]:
        raise ValueError(f"{path} has {twice[0]!r} twice; leave one of them out")
    with staged(run, overwrite=overwrite) as new:
        plain = [word for word in found.words if word not in (UNKNOWN, END_OF_LINE)]
        tokenizer = Tokenizer(word_engine(plain))
        mean = found.vectors.mean(0)
        rows = [mean if (number := found.numbers.get(word)) is None else found.vectors[number] for word in (UNKNOWN,)]
        rows.append(found.vectors[found.numbers[END_OF_LINE]] if END_OF_LINE in found.numbers else np.zeros_like(mean))
        vectors = np.concatenate([np.stack(rows), found.vectors[[found.numbers[word] for word in plain]]])
        config = Word2VecConfig(vocabulary=tokenizer.vocabulary, width=found.width)
        model = Word2Vec(config)
        with torch.no_grad():
            model.embedding.weight.copy_(torch.from_numpy(vectors))
        tokenizer.save(new / "tokenizer.json")
        write_tensors(new / "model.safetensors", model_tensors(model))
        write_config(new, "word2vec", config.model_dump())
        write_manifest(new)
