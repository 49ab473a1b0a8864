"""Prompting: tasks without training, as a text that the model continues with the answer, after zero or more examples.

Radford et al. 2019 (GPT-2) wrote tasks as texts to continue; Brown et al. 2020 (GPT-3) added examples.
"""

from lmlab.prompting.asking import Answers, Asked, ask
from lmlab.prompting.items import PromptItem, read_items
from lmlab.prompting.templates import BUILTIN, Template, find_template

__all__ = ["BUILTIN", "Answers", "Asked", "PromptItem", "Template", "ask", "find_template", "read_items"]
