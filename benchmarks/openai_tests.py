"""The OpenAI client's own tests of completions, embeddings and models, against `lmlab serve --lenient`.

    pip download --no-binary openai --no-deps openai -d sdist && tar xzf sdist/openai-*.tar.gz -C sdist
    pip install --target extra pytest-asyncio httpx2 aiohttp httpx-aiohttp pytest-xdist
    python benchmarks/openai_tests.py sdist/openai-* TEXT --extra extra

Only its source distribution holds them. They send placeholders (`model="string"`, `logit_bias={"foo": 0}`), which a
lenient server passes over, and check every field of the answers. Printed: how many pass, and the names of the others.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from servers import lmlab_server, train_run

FILES = ["test_completions.py", "test_embeddings.py", "test_models.py"]


def run_tests(source: Path, address: str, extra: Path | None) -> dict[str, str]:
    """How each test ended, by name."""
    folders = [str(folder) for folder in (extra, os.environ.get("PYTHONPATH")) if folder]
    environment = {**os.environ, "TEST_API_BASE_URL": f"{address}/v1", "PYTHONPATH": os.pathsep.join(folders)}
    files = [str(Path("tests", "api_resources", name)) for name in FILES]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-rA", "--tb=short", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    found = re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    if not found:
        raise SystemExit(f"no test ran: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    if any(ended != "PASSED" for ended, _ in found):
        print(done.stdout[-6000:], file=sys.stderr)
    return {name: ended for ended, name in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the unpacked source distribution of openai")
    parser.add_argument("text", type=Path, help="a text of some hundred kilobytes")
    parser.add_argument("--extra", type=Path, help="a folder with what the tests import besides")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = ["--size", "tiny", "--tokenizer", "bpe:500"]
        run = train_run(Path(folder) / "tiny", arguments.text, "gpt2", *settings)
        with lmlab_server([run], "--lenient") as server:
            ended = run_tests(arguments.source, server.address, arguments.extra)
    print("| file | passed | failed |\n|---|---|---|")
    for name in FILES:
        counts = Counter(how == "PASSED" for test, how in ended.items() if name in test)
        print(f"| {name} | {counts[True]} | {counts[False]} |")
    for name, how in ended.items():
        if how != "PASSED":
            print(how, name)


if __name__ == "__main__":
    main()
