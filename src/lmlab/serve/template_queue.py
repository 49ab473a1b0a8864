"""Rendering the chat template of a run, for one request at a time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from lmlab.decoding.chat_writer import ChatWriter
from lmlab.tokenizers.chat_template import EndedTemplateError, Messages


class TemplateQueue:
    """One thread for the chat template of one run, so that a slow template delays no other run.

    A template that takes too long is ended. Requests that were waiting then fail with the same error, because each of
    them would wait for the time limit again.
    """

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="lmlab-chat-template")
        self._ended_at = 0.0
        self._error = ""

    def encode(self, chat: ChatWriter, messages: Messages, *, arrived: float) -> list[int]:
        """The tokens of a conversation; `arrived` is when the request arrived, by `time.monotonic`.

        It is called in the thread of this queue.
        """
        if arrived < self._ended_at:
            raise EndedTemplateError(self._error)
        try:
            return chat.encode(messages)
        except EndedTemplateError as error:
            self._ended_at, self._error = time.monotonic(), str(error)
            raise
