"""The page as one HTML file, for a lecture that students open without lmlab.

All modules of the page become one script. Each module is a function that is called at its first import; the few forms
of import and export that the modules have are rewritten. The file may load nothing: its Content-Security-Policy allows
its own script and style, by their hashes, and images that it makes itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import Response

from lmlab.studio.responses import respond

STATIC = Path(__file__).with_name("static")
MAIN = "main.js"
IMPORT = re.compile(r'^import (?:(?P<default>\w+)|\{(?P<names>[^}]*)\}) from "(?P<path>\.[^"]+)";$', re.MULTILINE)
LAZY_IMPORT = re.compile(r"\bimport\(`(?P<folder>\./[^`]*)\$\{(?P<name>\w+)\}\.js`\)")
EXPORT = re.compile(r"^export (?P<what>(?:const|let|class|async function\*?|function\*?) (?P<name>\w+))", re.MULTILINE)
DEFAULT = re.compile(r"^export default ", re.MULTILINE)
START = """const modules = {%s}, loaded = {};
const load = name => {
  if (!(name in loaded)) { loaded[name] = {}; loaded[name].done = modules[name](loaded[name]); }
  return loaded[name];
};
load(%s);"""
PAGE = """<!doctype html>
<html lang="en" class="saved">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="%(policy)s">
<title>Lecture</title>
<style>%(style)s</style>
</head>
%(body)s
<script type="application/json" id="recorded">"""
END = """</script>
<script>%s</script>
</html>
"""


def make_router() -> APIRouter:
    router = APIRouter()

    @router.get("/lecture/page")
    def page() -> Response:
        """What stands before and after the recorded answers in the file of a saved lecture."""
        before, after = make_page()
        return respond({"before": before, "after": after})

    return router


def make_page() -> tuple[str, str]:
    """The HTML before and after the recorded answers."""
    script, style = make_script(), (STATIC / "studio.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    index = (STATIC / "index.html").read_text(encoding="utf-8")
    body = index[index.index("<body>") : index.index("</body>")]
    return PAGE % {"policy": policy, "style": style, "body": body}, END % script


def make_script() -> str:
    """All modules of the page as one script."""
    files = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js"))
    modules = ",\n".join(f"{json.dumps(name)}: {wrap(name, (STATIC / name).read_text('utf-8'))}" for name in files)
    return '"use strict";\n' + (START % (modules, json.dumps(MAIN))).replace("</", "<\\/")


def wrap(name: str, source: str) -> str:
    """A module as a function that gets the object of its exports."""

    def resolve(path: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))

    def write_import(found: re.Match[str]) -> str:
        names = f"default: {found['default']}" if found["default"] else found["names"].replace(" as ", ": ")
        return f"const {{ {names.strip()} }} = load({json.dumps(resolve(found['path']))});"

    def write_lazy_import(found: re.Match[str]) -> str:
        return f"load(`{resolve(found['folder'])}/${{{found['name']}}}.js`)"

    exported = [found["name"] for found in EXPORT.finditer(source)]
    source = IMPORT.sub(write_import, source)
    source = LAZY_IMPORT.sub(write_lazy_import, source)
    source = DEFAULT.sub("exports.default = ", EXPORT.sub(r"\g<what>", source))
    if left := re.search(r"^(?:import|export)\b.*|\bimport\(.*", source, flags=re.MULTILINE):
        raise AssertionError(f"{name}: the bundle does not know this form: {left[0]}")
    given = f"Object.assign(exports, {{ {', '.join(exported)} }});" if exported else ""
    kind = "async " if name == MAIN else ""
    return f"{kind}exports => {{\n{source}\n{given}\n}}"


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
