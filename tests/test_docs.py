"""The documentation is true: its snippets run and print what they say, its commands work, its names exist.

Conventions in README.md and docs/**/*.md:
- ```python blocks run in order, in one namespace and one temporary folder, which holds a short `book.txt`, sentences
  and their translations line by line, `train.en` and `train.de`, and labelled texts, `reviews.tsv`. A comment
  `# -> TEXT` is what that line prints; a ```text block right after a ```python block is all that the block prints.
- `<!-- run -->` before a ```console block runs its commands, which are lmlab's, in the same folder and in their place.
- `<!-- skip: REASON -->` before a block leaves it out.
- The pages in docs/tutorials are made from notebooks, which `test_tutorials.py` runs.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from typer.testing import CliRunner

import lmlab
from lmlab.cli import app
from lmlab.cli.commands import COMMANDS, load_command
from lmlab.models import ARCHITECTURES, LINEAGE
from lmlab.objectives import TASKS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lmlab"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
PLANETS = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"]


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    code: str
    mark: str  # the HTML comment right before it


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        if opening := re.fullmatch(r"(`{3,})(\w*)", lines[at]):
            end = lines.index(opening[1], at + 1)
            before = next((line for line in reversed(lines[:at]) if line.strip()), "")
            mark = re.fullmatch(r"<!-- (.+) -->", before.strip())
            found.append(Block(at + 1, opening[2], "\n".join(lines[at + 1 : end]), mark[1] if mark else ""))
            at = end
        at += 1
    return found


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def book() -> str:
    """A small text with something to learn in it."""
    paragraphs = []
    for number in range(240):
        planet, other = PLANETS[number % 8], PLANETS[(3 * number + 1) % 8]
        paragraphs.append(
            f"The planet {planet} goes round the sun, and so does {other}. "
            f"Once upon a time, on day {number}, somebody looked at {planet} and wrote it down."
        )
    return "\n".join(paragraphs) + "\n"


def translations() -> tuple[str, str]:
    """Sentences and their translations."""
    days = [(number, PLANETS[number % 8]) for number in range(240)]
    english = "".join(f"Somebody looked at {planet} on day {number}.\n" for number, planet in days)
    german = "".join(f"Jemand sah am Tag {number} nach {planet}.\n" for number, planet in days)
    return english, german


def reviews() -> str:
    """Labelled texts."""
    words = {"good": ["lovely", "warm", "moving"], "bad": ["dull", "cold", "empty"]}
    rows = [f"a {word} film about {planet}\t{label}" for label in words for word in words[label] for planet in PLANETS]
    return "\n".join(["text\tlabel", *rows]) + "\n"


@contextlib.contextmanager
def folder_with_book(path: Path) -> Iterator[None]:
    (path / "book.txt").write_text(book(), encoding="utf-8")
    (path / "reviews.tsv").write_text(reviews(), encoding="utf-8")
    for name, text in zip(("train.en", "train.de"), translations(), strict=True):
        (path / name).write_text(text, encoding="utf-8")
    with contextlib.chdir(path):
        yield


@pytest.fixture
def _unchanged_tables() -> Iterator[None]:
    """A page may add a system or a task; the other tests do not see it."""
    before, tasks = dict(LINEAGE), dict(TASKS)
    yield
    LINEAGE.clear()
    LINEAGE.update(before)
    TASKS.clear()
    TASKS.update(tasks)


@pytest.mark.usefixtures("_unchanged_tables")
@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_page_runs_and_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    from_notebook = page.parent.name == "tutorials"
    found = [] if from_notebook else [block for block in blocks(page) if not block.mark.startswith("skip:")]
    if not any(_runs(block) for block in found):
        pytest.skip("nothing to run on this page")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    namespace: dict[str, Any] = {"__name__": "docs"}
    try:
        with folder_with_book(tmp_path), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for block, following in zip(found, [*found[1:], None], strict=True):
                if block.language == "python":
                    _run_python(page, block, following, namespace)
                elif _runs(block):
                    _run_console(page, block)
    finally:
        torch.set_num_threads(threads)


def _runs(block: Block) -> bool:
    return block.language == "python" or (block.language == "console" and block.mark == "run")


def _run_python(page: Path, block: Block, following: Block | None, namespace: dict[str, Any]) -> None:
    printed = io.StringIO()
    code = "\n" * block.line + block.code  # so that errors name the page's own lines
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(page), "exec", dont_inherit=True), namespace)
    expected = re.findall(r"#\s+->\s?(.*)", block.code)
    if following is not None and following.language == "text" and _adjoining(block, following):
        expected = following.code.splitlines()
    if expected:
        where = f"{page_name(page)}, block at line {block.line}"
        assert [line.rstrip() for line in printed.getvalue().splitlines()] == expected, where


def _adjoining(block: Block, following: Block) -> bool:
    return following.line == block.line + len(block.code.splitlines()) + 2


def _run_console(page: Path, block: Block) -> None:
    """Run each command in this process, which spares importing torch anew."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for command in commands(block.code):
            program, *arguments = shlex.split(command, comments=True)
            assert program == "lmlab", f"{page_name(page)}: only lmlab is run, not {command}"
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, f"{page_name(page)}: {command}\n{result.output}{result.exception!r}"
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def commands(code: str) -> list[str]:
    """The commands of a console block: its lines after `$ `, or all of them where no line begins so."""
    lines = re.sub(r"\\\n\s*", "", code).splitlines()
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return prompted or [line for line in lines if line.strip() and not line.startswith("#")]


def options_of(*verbs: str) -> set[str]:
    """The options of a verb, as its help shows them; of a group, those of all verbs in it."""
    shown = CliRunner().invoke(app, [*verbs, "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    inner = getattr(load_command(COMMANDS[verbs[0]]), "commands_table", {}) if len(verbs) == 1 else {}
    own = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", shown.output))
    return own.union(*(options_of(*verbs, name) for name in inner))


def test_every_option_in_the_pages_exists() -> None:
    """An option after a verb must be one of that verb's; one named alone, of some verb's."""
    known = {verb: options_of(verb) for verb in COMMANDS}
    every = {option for options in known.values() for option in options} | {"--version", "--help"}
    wrong = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").partition("## Renamed in")[0]  # old spellings in the reference
        prose = re.sub(r"^```python\n.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        for verb, rest in re.findall(r"\blmlab (\w+)((?:[^\n`|;#]|\\\n)*)", prose):
            allowed = known.get(verb, every)
            used = set(re.findall(r"(?<=\s)--[a-z][\w-]*", re.sub(r"'[^']*'|\"[^\"]*\"", "''", rest)))
            wrong += [f"{page_name(page)}: lmlab {verb} {option}" for option in sorted(used - allowed - {"--help"})]
        if page.parent.name in ("results", "tutorials"):  # options of the scripts in benchmarks/; styles of outputs
            continue
        programs = r"^\w*\$ +(?!lmlab).*$|`(?:pip|git|python|torchrun|#SBATCH|ruff|mypy|pytest)[^`]*`"
        scripts = r"^```bash\n(?:.*\n)*?```"
        foreign = re.sub(f"{programs}|{scripts}", "", prose, flags=re.MULTILINE)
        alone = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", foreign))
        wrong += [f"{page_name(page)}: {option}" for option in sorted(alone - every)]
    assert wrong == []


def test_every_verb_in_the_pages_exists_and_every_verb_is_documented() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    typed = [
        command
        for page in PAGES
        for block in blocks(page)
        if block.language == "console"
        for command in commands(block.code)
    ]
    used = set(re.findall(r"`lmlab ([a-z]+)", text)) | set(
        re.findall(r"^lmlab ([a-z]+)", "\n".join(typed), re.MULTILINE)
    )
    assert used - set(COMMANDS) == set()
    guides = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert [verb for verb in COMMANDS if f"lmlab {verb}" not in guides] == []


def test_every_system_has_its_paragraph() -> None:
    headings = re.findall(
        r"^### `([\w-]+)`", (ROOT / "docs" / "lineage.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert headings == list(LINEAGE)


def test_every_set_key_in_the_pages_exists() -> None:
    """`--set group.key=value` names a setting of the group; of the model, a setting of some system."""
    from lmlab.config import Config
    from lmlab.data import DATA, load_config
    from lmlab.models import load_class
    from lmlab.objectives import OBJECTIVES, load_objective
    from lmlab.runs.recipe import TokenizerConfig
    from lmlab.training.settings import TrainConfig

    groups: dict[str, type[Config]] = {
        "tokenizer": TokenizerConfig,
        "train": TrainConfig,
        "language": TrainConfig,
    }
    keys = {name: set(config.model_fields) for name, config in groups.items()}
    keys["data"] = set().union(*(load_config(kind).allowed() for kind in DATA))
    keys["objective"] = {"kind"}.union(*(load_objective(name).Config.model_fields for name in (*OBJECTIVES, *TASKS)))
    keys["model"] = {"kind", "size"}.union(
        *(load_class(name).Config.model_fields for name in (*LINEAGE, *ARCHITECTURES))
    )
    wrong = []
    for page in PAGES:
        for group, key in re.findall(r"--set '?(\w+)\.(\w+)=", page.read_text(encoding="utf-8")):
            if group != "GROUP" and key not in keys[group]:
                wrong.append(f"{page_name(page)}: {group}.{key}")
    assert wrong == []


def test_every_setting_of_training_is_in_its_guide() -> None:
    from lmlab.training.settings import TrainConfig

    guide = (ROOT / "docs" / "guides" / "training.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:train\.)?(\w+)`", guide))
    assert sorted(set(TrainConfig.model_fields) - named) == []


@pytest.mark.parametrize(("command", "guide"), [("train", "training"), ("finetune", "fine-tuning")])
def test_every_option_is_in_the_guide_of_its_command(command: str, guide: str) -> None:
    page = (ROOT / "docs/guides" / f"{guide}.md").read_text(encoding="utf-8")
    known = options_of(command) - {"--help"}
    assert len(known) > 20
    assert [option for option in sorted(known) if not re.search(rf"{option}(?![\w-])", page)] == []


def test_links_between_pages_lead_somewhere() -> None:
    wrong = []
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            other = (page.parent / path).resolve() if path else page
            if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors(other)):
                wrong.append(f"{page_name(page)}: {target}")
    assert wrong == []


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_tree_in_contributing_is_the_tree() -> None:
    """Entries are indented below their folder; a line may name more files of the same or of its own folder."""
    trees = [block.code for block in blocks(ROOT / "CONTRIBUTING.md") if block.code.startswith("src/lmlab/")]
    assert len(trees) == 1, "CONTRIBUTING has one block that begins with src/lmlab/"
    named: list[str] = []
    missing: list[str] = []
    above: dict[int, str] = {}  # the folder at each indent
    for line in trees[0].splitlines()[1:]:
        entry = re.match(r"^([\s│├└─]*)([\w.]+/?)(?=\s|$)", line)
        if entry is None:
            continue
        above = {indent: folder for indent, folder in above.items() if indent < len(entry[1])}
        parent = above[max(above)] if above else ""
        name = parent + entry[2]
        named.append(name)
        if name.endswith("/"):
            above[len(entry[1])] = name
        for file in [entry[2], *re.findall(r"[\w/]+\.py\b", line)]:
            if not any((SOURCE / folder / file).exists() for folder in (parent, name)):
                missing.append(parent + file)
    assert missing == []
    folders = {f"{path.name}/" for path in SOURCE.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert folders - set(named) == set()


def test_the_readme_is_short_and_names_every_system() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 100
    rows = "\n".join(line.split("|")[1] for line in lines if line.startswith("| `"))
    assert sorted(re.findall(r"`([\w-]+)`", rows)) == sorted(LINEAGE)


def test_the_changelog_knows_this_version() -> None:
    assert f"## {lmlab.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_pages_name_no_place_on_somebodys_machine() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        assert not re.search(r"(?<![\w.])/(home|tmp|work|Users)/", page.read_text(encoding="utf-8")), page_name(page)


def test_commands_are_read_from_console_blocks() -> None:
    with_output = "$ lmlab list\noutput\n$ lmlab train gpt2 \\\n    book.txt"
    assert commands(with_output) == ["lmlab list", "lmlab train gpt2 book.txt"]
    assert commands("lmlab list  # all of them\n\nlmlab demo") == ["lmlab list  # all of them", "lmlab demo"]
