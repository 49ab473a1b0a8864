"""The lecture plan: what the tests run as its rehearsal are the very commands of the lecture, with a smaller budget."""

from __future__ import annotations

from test_docs import ROOT, blocks, commands


def test_the_rehearsal_is_the_lecture_with_a_smaller_budget() -> None:
    found = [block for block in blocks(ROOT / "docs" / "lecture-plan.md") if block.language == "console"]
    rehearsal = [command for block in found if block.mark == "run" for command in commands(block.code)]
    lecture = [command for block in found if block.mark != "run" for command in commands(block.code)]
    assert len(lecture) == 5
    assert [each.replace("300steps", "20steps").replace("lecture/", "rehearsal/") for each in lecture] == rehearsal
