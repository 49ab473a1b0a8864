"""The request bodies of the routes, with bounds for all numbers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StrictStr

MOST_TEXTS = 128
MOST_IDS = 65536
Name = Annotated[StrictStr, Field(max_length=200, description="a run's folder; the first one by default")] | None
Number = Annotated[float, Field(allow_inf_nan=False)]
TokenId = Annotated[StrictInt, Field(ge=0, lt=2**53)]
Ids = Annotated[list[TokenId], Field(max_length=MOST_IDS, fail_fast=True)]
Texts = Annotated[list[StrictStr], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
ManyIds = Annotated[list[Ids], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
Prompt = StrictStr | Texts | Ids | ManyIds


class Request(BaseModel):
    """A body in which every field is known."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class StreamOptions(Request):
    """What a stream contains besides the text."""

    include_usage: bool = Field(False, description="one more chunk at the end, with the usage")
    include_obfuscation: bool = Field(False, description="accepted, and without effect")


def _whole_stop(stop: str | list[str] | None) -> str | list[str] | None:
    if stop == "" or (isinstance(stop, list) and "" in stop):
        raise ValueError("an empty stop string would stop every text before it begins; leave it out")
    return stop


StopText = Annotated[StrictStr, Field(max_length=256)]
Stop = Annotated[
    StopText | Annotated[list[StopText], Field(max_length=16, fail_fast=True)] | None, AfterValidator(_whole_stop)
]


class Completion(Request):
    """POST /v1/completions."""

    model: Name = None
    prompt: Prompt | None = Field(None, description="a text, several, token ids, or several lists of ids")
    max_tokens: StrictInt | None = Field(16, ge=0, le=2**20, description="length limit in tokens")
    temperature: Number | None = Field(1.0, ge=0, le=2, description="0 takes the best token")
    top_p: Number | None = Field(1.0, ge=0, le=1, description="nucleus: the smallest set of tokens with this mass")
    n: StrictInt | None = Field(1, ge=1, le=MOST_TEXTS, description="texts for each prompt")
    best_of: StrictInt | None = Field(None, ge=1, le=MOST_TEXTS, description="texts generated; the n best are returned")
    logprobs: StrictInt | None = Field(None, ge=0, le=20, description="alternatives of each token; 0: none")
    echo: bool | None = Field(False, description="give the prompt back, too")
    stop: Stop = Field(None, description="strings before which a text ends")
    stream: bool | None = Field(False, description="server-sent events, token by token")
    stream_options: StreamOptions | None = None
    seed: StrictInt | None = Field(None, ge=-(2**63), lt=2**63, description="the same seed, the same text")
    presence_penalty: Number | None = Field(0.0, ge=-2, le=2)
    frequency_penalty: Number | None = Field(0.0, ge=-2, le=2)
    logit_bias: dict[str, Annotated[Number, Field(ge=-100, le=100)]] | None = Field(None, max_length=1024)
    suffix: StrictStr | None = Field(None, description="refused: these models write from left to right")
    user: StrictStr | None = Field(None, max_length=1000, description="accepted, and without effect")
    top_k: StrictInt | None = Field(None, ge=-1, le=2**31, description="sample from the k best; 0 or -1: from all")
    min_p: Number | None = Field(None, ge=0, le=1, description="least fraction of the best token's probability")
    repetition_penalty: Number | None = Field(1.0, gt=0, le=10)
    use_beam_search: bool | None = Field(False, description="beam search with max(n, best_of) beams; no sampling")
    length_penalty: Number | None = Field(0.0, ge=-10, le=10, description="of a beam search")
    prompt_logprobs: StrictInt | None = Field(None, ge=0, le=20, description="score the prompt, with alternatives")
    return_token_ids: bool | None = Field(False, description="include the token ids of prompt and text")
    boundary: bool | None = Field(None, description="put the boundary before the prompt; by default as the run does")
    add_special_tokens: bool | None = Field(True, description="accepted, and without effect: see boundary")


class LenientCompletion(Completion):
    """The same with whatever a conformance test sends: unknown fields, and values that mean nothing here."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    best_of: StrictInt | None = Field(None, ge=0, le=MOST_TEXTS)


class ContentPart(BaseModel):
    """A part of a message's content."""

    type: StrictStr
    text: StrictStr | None = None


def _only_text(content: str | list[ContentPart]) -> str | list[ContentPart]:
    for part in content if isinstance(content, list) else ():
        if part.type != "text" or part.text is None:
            raise ValueError(f"a part of the type {part.type[:40]!r}: only texts are read, with their text")
    return content


Parts = Annotated[list[ContentPart], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]


class Message(Request):
    """A message of a conversation; what developers say is the system's message."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[StrictStr | Parts, AfterValidator(_only_text)]
    name: StrictStr | None = Field(None, max_length=200)

    def plain(self) -> dict[str, str]:
        """The message as chat templates read it."""
        parts = [self.content] if isinstance(self.content, str) else [part.text or "" for part in self.content]
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": "".join(parts), **({} if self.name is None else {"name": self.name})}


class ChatCompletion(Request):
    """POST /v1/chat/completions."""

    model: Name = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=1024, fail_fast=True)]
    max_tokens: StrictInt | None = Field(None, ge=1, le=2**20, description="length limit in tokens")
    max_completion_tokens: StrictInt | None = Field(None, ge=1, le=2**20, description="the same, OpenAI's newer name")
    temperature: Number | None = Field(1.0, ge=0, le=2, description="0 takes the best token")
    top_p: Number | None = Field(1.0, ge=0, le=1, description="nucleus: the smallest set of tokens with this mass")
    n: StrictInt | None = Field(1, ge=1, le=MOST_TEXTS, description="answers")
    logprobs: bool | None = Field(False, description="include the log-probability of each token")
    top_logprobs: StrictInt | None = Field(None, ge=0, le=20, description="alternatives of each token")
    stop: Stop = Field(None, description="strings before which a text ends")
    stream: bool | None = Field(False, description="server-sent events, token by token")
    stream_options: StreamOptions | None = None
    seed: StrictInt | None = Field(None, ge=-(2**63), lt=2**63, description="the same seed, the same text")
    presence_penalty: Number | None = Field(0.0, ge=-2, le=2)
    frequency_penalty: Number | None = Field(0.0, ge=-2, le=2)
    logit_bias: dict[str, Annotated[Number, Field(ge=-100, le=100)]] | None = Field(None, max_length=1024)
    user: StrictStr | None = Field(None, max_length=1000, description="accepted, and without effect")
    top_k: StrictInt | None = Field(None, ge=-1, le=2**31, description="sample from the k best; 0 or -1: from all")
    min_p: Number | None = Field(None, ge=0, le=1, description="least fraction of the best token's probability")
    repetition_penalty: Number | None = Field(1.0, gt=0, le=10)


class LenientChatCompletion(ChatCompletion):
    """The same with unknown fields passed over."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class Embeddings(Request):
    """POST /v1/embeddings."""

    model: Name = None
    input: Prompt = Field(description="a text, several, token ids, or several lists of ids")
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: StrictInt | None = Field(None, ge=1, le=2**20, description="only the first numbers of each vector")
    user: StrictStr | None = Field(None, max_length=1000)
    pool: Literal["mean", "max", "cls"] = Field("mean", description="how a text's vectors become one")
    layers: StrictStr | StrictInt = Field("last", description="as of lmlab embed")


class Fill(Request):
    """POST /v1/fill."""

    model: Name = None
    text: StrictStr = Field(max_length=20000, description="with [MASK] for each masked token")
    top: StrictInt = Field(5, ge=1, le=100)
    jointly: bool = False
    order: Literal["left-to-right", "confident"] = "left-to-right"
    beams: StrictInt = Field(16, ge=1, le=64)


class PredictItem(Request):
    """One example: a text or two, the choices after a question, or the words of a sentence."""

    text: StrictStr | Annotated[list[StrictStr], Field(max_length=2000)]
    second: StrictStr | None = None
    choices: Annotated[list[StrictStr], Field(min_length=2, max_length=64)] | None = None


class Predict(Request):
    """POST /v1/predict."""

    model: Name = None
    input: (
        StrictStr | PredictItem | Annotated[list[StrictStr | PredictItem], Field(min_length=1, max_length=MOST_TEXTS)]
    )


class Translate(Request):
    """POST /v1/translate."""

    model: Name = None
    input: Annotated[StrictStr, Field(max_length=20000)] | Texts
    beams: StrictInt = Field(5, ge=1, le=16)
    length_penalty: Number = Field(0.6, ge=-10, le=10)
    max_tokens: StrictInt | None = Field(None, ge=1, le=1024)


class Tokenize(Request):
    """POST /tokenize."""

    model: Name = None
    prompt: StrictStr = Field(description="the text; the name of the boundary token is encoded as that token")
    add_special_tokens: bool = Field(False, description="put before it what the model reads before a text")


class Detokenize(Request):
    """POST /detokenize."""

    model: Name = None
    tokens: Ids
