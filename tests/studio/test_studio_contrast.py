"""Contrast as WCAG 2 defines it, computed over the colours that Chromium shows, in both schemes: 4.5 for text, 3 for
large text, borders of fields and marks of runs."""

from __future__ import annotations

from typing import Any

import pytest

from lmlab.pages.figures.palette import PALETTE
from studio_page import CHROMIUM, NO_CHROMIUM, Studio

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)

TEXTS = """() => {
  const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const behind = (element, x, y) => {
    for (const each of document.elementsFromPoint(x, y)) {
      if (each instanceof SVGElement && !["rect", "circle", "polygon", "path"].includes(each.tagName)) continue;
      const style = getComputedStyle(each);
      const [r, g, b, a = 1] = parse(each instanceof SVGElement ? style.fill : style.backgroundColor);
      if (each instanceof SVGElement && (style.fill === "none" || style.visibility === "hidden")) continue;
      if (r !== undefined && a > 0.99) return [r, g, b];
    }
    return parse(getComputedStyle(document.body).backgroundColor).slice(0, 3);
  };
  const found = [];
  for (const each of document.querySelectorAll("body *")) {
    const own = [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own || !each.checkVisibility() || each.closest("option, .pruned, :disabled, noscript, .skip")) continue;
    const box = each.getBoundingClientRect(), x = box.left + box.width / 2, y = box.top + box.height / 2;
    if (!box.width || !box.height || x < 0 || y < 0 || x > innerWidth || y > innerHeight) continue;
    if (!document.elementsFromPoint(x, y).some(one => one === each || each.contains(one))) continue;
    const style = getComputedStyle(each), svg = each instanceof SVGElement;
    found.push({
      text: each.textContent.trim().slice(0, 40), name: `${each.tagName}.${each.getAttribute("class") ?? ""}`,
      ink: parse(svg ? style.fill : style.color).slice(0, 3), paper: behind(each, x, y),
      size: parseFloat(style.fontSize), bold: Number(style.fontWeight) >= 600,
    });
  }
  return found;
}"""
FIELDS = """() => [...document.querySelectorAll(".controls :is(input, select, textarea, button)")].filter(
  each => !each.closest(".words")).map(each => {
  const parse = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  return { name: each.name || each.textContent, edge: parse(getComputedStyle(each).borderTopColor),
           card: parse(getComputedStyle(each.closest("section")).backgroundColor), type: each.type };
})"""
CARD = """() => getComputedStyle(document.querySelector("section")).backgroundColor.match(/\\d+/g).map(Number)"""
VIEWS: dict[str, dict[str, Any]] = {
    "runs": {"sort": "score", "card": "demo/lstm"},
    "train": {},
    "next": {"run": ["counts", "demo/lstm", "demo/gpt2"], "text": "The cat"},
    "write": {"run": "demo/gpt2", "text": "The cat", "mode": "beams"},
    "fill": {"run": "bert", "text": "The cat sat on the mat", "hidden": "4"},
    "surprisal": {"run": ["counts", "demo/lstm"], "text": "The cat sat on the mat."},
    "cells": {"run": "demo/lstm", "text": "The cat sat on the mat."},
    "minimal-pairs": {"run": ["counts", "demo/lstm"], "pairs": "The cat sat. | The cat sit."},
    "neighbours": {"run": ["demo/lstm", "demo/gpt2"], "words": "cat"},
    "translate": {"run": "en-de", "text": "somebody saw day 3"},
    "predict": {"run": "labels", "text": "a good film"},
    "how": {"run": "demo/gpt2", "text": "The cat sat", "step": "0.weights", "number": "0.weights:0,2,1"},
    "attention": {"run": "bert", "text": "The cat sat on the mat", "lock": "2"},
    "attribution": {"run": ["demo/lstm", "demo/gpt2"], "text": "The cat"},
    "bias": {"run": ["demo/gpt2", "bert"], "words": "cat, dog", "templates": "The {word} said {group} sat."},
    "lecture": {},
}


def luminance(colour: list[float]) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: list[float], other: list[float]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast([0, 0, 0], [255, 255, 255]) == pytest.approx(21)
    assert contrast([119, 119, 119], [255, 255, 255]) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_fields_and_marks_can_be_read(browser: Any, address: str, scheme: str) -> None:
    studio = Studio(browser, address, color_scheme=scheme, reduced_motion="reduce")
    studio.page.set_viewport_size({"width": 1280, "height": 2400})
    low: list[Any] = []
    read = 0
    for view, state in VIEWS.items():
        page = studio.open(view, **state)
        for each in page.evaluate(TEXTS):
            needed = 3.0 if each["size"] >= 24 or (each["size"] >= 18.66 and each["bold"]) else 4.5
            read += 1
            if (found := contrast(each["ink"], each["paper"])) < needed:
                low.append((view, each["name"], each["text"], round(found, 2)))
        for each in page.evaluate(FIELDS):
            if each["type"] not in ("range", "checkbox", "radio") and contrast(each["edge"], each["card"]) < 3:
                low.append((view, "edge", each["name"]))
    card = page.evaluate(
        "getComputedStyle(document.querySelector('section')).backgroundColor.match(/\\d+/g).map(Number)"
    )
    for colour in PALETTE:
        if contrast([int(colour[place : place + 2], 16) for place in (1, 3, 5)], card) < 3:
            low.append(("palette", colour))
    assert low == []
    assert read > 500
    page.close()
