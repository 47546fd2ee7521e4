"""The settings of the site: ``python -m sphinx -W docs build/site``."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

from kvproto import REGISTRY, SPEC_VERSION

project = "kvproto"
author = copyright = "The kvproto authors"
version = release = SPEC_VERSION

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_heading_anchors = 3
nitpicky = True
# Types of other packages, type variables and aliases; links to functions and methods must lead on.
nitpick_ignore_regex = [
    ("py:class", r"(mlx|mx|collections|typing_extensions|os)\..*"),
    (
        "py:class",
        r"(.*\.)?(H|_?T|\w+_co|TypeIs|Prompt|QuantizedState|Traits|Judgement|list\[dict\[str)",
    ),
]

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"kvproto {SPEC_VERSION}"
html_copy_source = False

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#]+)\)")


def prepare(app: Sphinx, name: str, source: list[str]) -> None:
    """What a page needs here and not in the repository.

    A link that leaves docs becomes one into the reference, where its text is the name of something
    in a Python file, and else only its text. The first page of the spec gets its contents, which
    are a table there.
    """

    def replaced(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = (app.srcdir / name).parent / target
        if path.resolve().is_relative_to(app.srcdir.resolve()):
            return link.group()
        return f"{{py:obj}}{text}" if target.endswith(".py") and "." in text else text

    source[0] = LINK.sub(replaced, source[0])
    if name == "spec/index":
        pages = "\n".join(contract.name for contract in REGISTRY.contracts)
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def plain(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking words before a colon for the type of an attribute or a result.

    It looks for the colon in the first line only.
    """
    if what in ("attribute", "data", "property") and lines:
        lines[:1] = re.sub(r"(?<!:): ", ":\n", lines[0]).split("\n")
    for index, line in enumerate(lines[:-1]):
        if line.strip() == "Returns:":
            indent = re.match(" *", lines[index + 1]).group()
            lines[index + 1 : index + 2] = [
                indent + part.strip()
                for part in re.sub(r" (\S+: )", r"\n\1", lines[index + 1].strip()).split("\n")
            ]


def setup(app: Sphinx) -> None:
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", plain, priority=400)
