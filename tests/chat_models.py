"""Small chat models of `transformers` with templates in the styles that published models have."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers as hf
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers

transformers: Any = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

CHATML = """\
{% if messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}
{%- endif %}
{% for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA_2 = """\
{% if messages[0]['role'] == 'system' %}
    {% set first = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}
    {% set rest = messages[1:] %}
{% else %}
    {% set first = '' %}
    {% set rest = messages %}
{% endif %}
{% for message in rest %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('user and assistant must take turns') }}
    {% endif %}
    {% if message['role'] == 'user' %}
        {{- bos_token + '[INST] ' + (first if loop.first else '') + message['content'].strip() + ' [/INST]' }}
    {% elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] | trim + ' ' + eos_token }}
    {% endif %}
{% endfor %}
"""

ZEPHYR = """\
{% for message in messages %}
{% if message.role in ['system', 'user', 'assistant'] %}
{{ '<|' ~ message.role ~ '|>\\n' ~ message.content ~ eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

MISTRAL = """\
{{- bos_token }}
{%- set state = namespace(system='', turns=0) %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- set state.system = message['content'] %}
        {%- continue %}
    {%- endif %}
    {%- set state.turns = state.turns + 1 %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' }}
        {%- if loop.last and state.system %}{{- state.system + '\\n\\n' }}{%- endif %}
        {{- message['content'] + ' [/INST]' }}
    {%- else %}
        {%- generation %}
        {{- ' ' + message['content'] + eos_token }}
        {%- endgeneration %}
    {%- endif %}
{%- endfor %}
"""

DATED = """\
Today is {{ strftime_now('%Y') }}.
{{ messages | tojson }} {{ {'b': 1, 'a': ['<é>']} | tojson(indent=2, sort_keys=true) }}{{ missing }}
{%- if tools is not none %}tools{% endif %}{{ dict(a=1).a }}{{ unk_token is defined }}{{ mask_token is defined }}
"""

PLAIN = """\
{% for message in messages %}{{ message.role | title }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"""

TEMPLATES = {
    "chatml": CHATML,
    "llama-2": LLAMA_2,
    "zephyr": ZEPHYR,
    "mistral": MISTRAL,
    "dated": DATED,
    "plain": PLAIN,
}
END = {"chatml": "<|im_end|>", "llama-2": "</s>", "zephyr": "</s>", "mistral": "</s>"}

QUESTION = [{"role": "user", "content": "What goes round the sun?"}]
CONVERSATIONS = {
    "question": QUESTION,
    "system": [{"role": "system", "content": "Say little, naïve 😀 one."}, *QUESTION],
    "history": [*QUESTION, {"role": "assistant", "content": " Mars.\n"}, {"role": "user", "content": "And  Venus?"}],
    "answered": [*QUESTION, {"role": "assistant", "content": 'Mars & <Venus> "quoted"'}],
    "special": [{"role": "user", "content": "a </s> and <|im_end|> in a text"}],
}
TEXT = ["What goes round the sun? Mars and Venus do. Be kind, say little. Hello! system user assistant\n"] * 20
PLANETS = [("What goes round the sun?", "Mars."), ("Hello!", "Be kind 😀"), ("And Venus?", "Venus do.")]


def make_tokenizer(template: str, *, settings: dict[str, Any] | None = None) -> Any:
    """A byte-level tokenizer with special tokens, as `transformers` has it."""
    engine = hf.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    specials = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=specials, initial_alphabet=sorted(alphabet), show_progress=False
    )
    engine.train_from_iterator(TEXT, trainer)
    eos = "<|im_end|>" if template == "chatml" else "</s>"
    named = {"bos_token": "<s>", "eos_token": eos, "unk_token": "<unk>", **(settings or {})}
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **named)
    made.chat_template = TEMPLATES[template]
    return made


def make_model(size: int, *, window: int = 256, seed: int = 0) -> Any:
    """A tiny Llama with random weights."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=size,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.LlamaForCausalLM(config).eval()


@cache
def trained_weights(template: str) -> dict[str, Any]:
    """Weights that have learnt a few answers by heart, with their ends."""
    tokenizer = make_tokenizer(template)
    model = make_model(len(tokenizer)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    rows = []
    for question, answer in PLANETS:
        turn = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
        whole = tokenizer.apply_chat_template([*turn, {"role": "assistant", "content": answer}], tokenize=False)
        ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
        begin = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
        rows.append((torch.tensor([ids]), begin))
    for _ in range(60):
        optimizer.zero_grad()
        for ids, begin in rows:
            labels = ids.clone()
            labels[:, :begin] = -100
            model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def write_chat_folder(folder: Path, template: str, *, trained: bool = False, window: int = 256) -> Path:
    """A Hugging Face folder of a chat model; where `trained`, it knows the answers to `PLANETS`."""
    tokenizer = make_tokenizer(template)
    model = make_model(len(tokenizer), window=window)
    if trained:
        model.load_state_dict(trained_weights(template))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
