"""The pages of the spec are those that the clauses give, and README's commands exist."""

import importlib.util
import re
from pathlib import Path

import pytest

from conformance.cli import main

ROOT = Path(__file__).parent.parent


def builder():
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_up_to_date():
    pages = builder().pages()
    found = {path.name: path.read_text() for path in (ROOT / "docs" / "spec").glob("*.md")}
    assert set(found) == set(pages)
    stale = [name for name, text in pages.items() if found[name] != text]
    assert not stale, f"run: python docs/build.py ({stale})"


def test_page_of_the_profiles_is_up_to_date():
    text = (ROOT / "docs" / "profiles.md").read_text()
    assert text == builder().profiles(), "run: python docs/build.py"


def test_links_between_pages_exist():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


@pytest.mark.parametrize("option", re.findall(r"`(--[a-z-]+)", (ROOT / "README.md").read_text()))
def test_options_that_readme_names_exist(option, pytestconfig):
    if option == "--strict":
        option = "--conformance-strict"
    text = (ROOT / "_kvproto_pytest.py").read_text()
    assert f'"{option}"' in text


def test_commands_that_readme_names_exist(capsys):
    for command in set(re.findall(r"`kvproto (\w+)", (ROOT / "README.md").read_text())):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0, command
    capsys.readouterr()
