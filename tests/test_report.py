"""Result files: their schema, and the page that joins them."""

import copy
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

import conformance.report
from conformance import check
from conformance.candidates import Candidate
from conformance.cli import main
from conformance.config import Options
from conformance.report.html import load, render
from conformance.target import TargetError
from conformance.verdict import Report, Result, Verdict, package_of, reports_to_json

SCHEMA = json.loads(Path(conformance.report.__file__).with_name("schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(
    SCHEMA, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A file of two caches: one clause of each is judged, and one cache fails it."""
    path = tmp_path_factory.mktemp("results") / "out.json"
    code = path.with_name("wrong.py")
    code.write_text(
        "from reference_impl import KVCache\n\n\n"
        "class Wrong(KVCache):\n"
        "    def make_mask(self, N, return_array=False, window_size=None):\n"
        "        return None\n"
    )
    targets = ["reference_impl:KVCache", f"{code}:Wrong"]
    arguments = ["--clause", "MASK-4", "--clause", "POS-1", "--effort", "quick", "--json"]
    assert main(["check", *targets, *arguments, str(path)]) == 1
    return path


@pytest.fixture
def data(results):
    return json.loads(results.read_text())


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_result_files_are_what_the_schema_says(data):
    VALIDATOR.validate(data)
    good, wrong = data["subjects"]
    failed = [one["clause"] for one in wrong["results"] if one["verdict"] == "fail"]
    assert len(failed) == 1
    assert [one["verdict"] for one in good["results"]] == ["pass", "pass"]


def test_every_verdict_is_in_the_schema(data):
    assert set(SCHEMA["$defs"]["result"]["properties"]["verdict"]["enum"]) == {
        str(verdict) for verdict in Verdict
    }
    data["subjects"][0]["results"] = [Result("POS-1", one).to_json() for one in Verdict]
    VALIDATOR.validate(data)


def test_the_schema_describes_every_key():
    report = check("reference_impl:OffsetCache(5)", effort="quick", clauses=["POS-1"])
    data = reports_to_json([report])
    properties = SCHEMA["properties"]
    assert set(data) == set(properties)
    optional = {"profiles", "unusable"}
    assert set(data["subjects"][0]) == set(SCHEMA["$defs"]["subject"]["properties"]) - optional
    assert set(data["subjects"][0]["results"][0]) == set(SCHEMA["$defs"]["result"]["properties"])


def test_a_cache_that_cannot_be_tested_is_in_the_file_and_on_the_page():
    report = Candidate("ends:Cache", unusable="it raises SystemExit").unusable_report(Options())
    data = reports_to_json([report])
    VALIDATOR.validate(data)
    assert not data["complete"]
    assert Report.from_json(data["subjects"][0], []).unusable == "it raises SystemExit"
    page = " ".join(Page(render([data])).words)
    assert "cannot be tested" in page
    assert "it raises SystemExit" in page


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.pop("date"),
        lambda data: data.update(date="yesterday"),
        lambda data: data["subjects"][0].update(conforms="yes"),
        lambda data: data["subjects"][0]["results"][0].update(verdict="fine"),
        lambda data: data["subjects"][0]["results"][0].update(clause="mask"),
        lambda data: data["subjects"][0].update(profiles={"generate": {}}),
    ],
)
def test_the_schema_refuses_other_content(data, spoil):
    spoil(data)
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(data)


def test_the_package_of_a_class():
    assert package_of("hypothesis.strategies.Text").startswith("hypothesis ")
    assert package_of("no_such_package.Cache") == ""


class Page(HTMLParser):
    """The links, ids and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.links += [found["href"]] if "href" in found else []
        self.ids += [found["id"]] if "id" in found else []
        assert tag not in ("link", "img", "iframe")
        assert "src" not in found

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_shows_each_finding_and_needs_no_other_file(data):
    page = Page(render([data], title="Two <caches>"))
    text = " ".join(page.words)
    assert len(page.ids) == len(set(page.ids))
    inner = [link[1:] for link in page.links if link.startswith("#")]
    assert len(inner) == 2 * 2  # two contracts of two caches were judged
    assert set(inner) <= set(page.ids)
    (failed,) = [one for one in data["subjects"][1]["results"] if one["verdict"] == "fail"]
    for part in (failed["message"], failed["program"], failed["observed"], "Two <caches>"):
        assert part in text
    assert "no ranking" in text


def test_profiles_are_columns_where_a_file_has_them(data):
    assert "speculative" not in render([data])
    other = copy.deepcopy(data)
    other["subjects"][1]["profiles"] = {
        "speculative": {"verdict": "no", "blocking": [other["subjects"][1]["results"][0]["clause"]]}
    }
    VALIDATOR.validate(other)
    page = Page(render([data, other]))
    assert "s4-profile-speculative" in page.ids
    assert "s3-profile-speculative" not in page.ids


def test_files_are_joined(results, tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert main(["report", str(results), str(results), "-o", str(page)]) == 0
    assert page.read_text().count("<tr data-rank") == 4
    assert str(page) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("{", "not JSON"),
        ("[]", "no result file"),
        ('{"format": 99, "subjects": []}', "has format 99"),
        (
            '{"format": 1, "spec_version": "2031.01", '
            '"subjects": [{"results": [{"clause": "NEW-1"}]}]}',
            "NEW-1",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, text, says):
    path = tmp_path / "file.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TargetError, match=says):
        load([path])


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_in_a_browser(results, tmp_path, width, height):
    browsers = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, browsers)), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(browsers)}")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    path = tmp_path / "page.html"
    path.write_text(render(load([results])))
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height})
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cell = page.locator("a.cell.fail")
        cell.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        dialog.wait_for()
        assert "import mlx.core as mx" in dialog.inner_text()
        page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        playwright.expect(cell).to_be_focused()  # the close event comes after the dialog is hidden
        page.keyboard.press("ArrowUp")
        assert cell.evaluate("cell => cell !== document.activeElement")
        rows = page.locator("tbody tr:visible")
        assert rows.count() == 2
        page.keyboard.press("/")
        page.keyboard.type("wrong")
        assert rows.count() == 1
        page.get_by_label("Show").select_option("pass")
        assert rows.count() == 0
        browser.close()
    assert not errors
