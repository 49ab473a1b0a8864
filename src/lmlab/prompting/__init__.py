"""Tasks without training: a text in which the answer comes next, with no, one or a few examples before it.

Radford et al. 2019 (GPT-2) put tasks as texts to be continued; Brown et al. 2020 (GPT-3) put examples before them.
"""

from lmlab.prompting.asking import Answers, Asked, ask
from lmlab.prompting.items import Item, read_items
from lmlab.prompting.templates import BUILTIN, Template, find_template

__all__ = ["BUILTIN", "Answers", "Asked", "Item", "Template", "ask", "find_template", "read_items"]
