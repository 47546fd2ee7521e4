"""Targets: what a user may write, and what a bad one is told."""

from functools import partial
from pathlib import Path

import pytest

from conformance.subject import Subject, examine, subject_from_factory, subjects_from_target
from conformance.target import TargetError, parse
from kvproto.visibility import Chunk, Full, Sinks, SlidingWindow
from reference_impl import KVCache, SlidingWindowKVCache

FILE = """
from reference_impl import KVCache
from conformance import Subject

class Mine(KVCache):
    pass

class Raises(KVCache):
    def __init__(self):
        raise OSError("no disk")

def make():
    return Mine()

def makes_a_list():
    return [Mine(), Mine()]

class Nested:
    class Inner(KVCache):
        pass

instance = Mine()
many = [Subject("one", Mine), Subject("two", Mine)]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "my caches.py").write_text(FILE)
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    (tmp_path / "local_caches.py").write_text(FILE)
    return tmp_path


def test_arguments_are_literals():
    target = parse("pkg.mod:Name(8, keep=2, names=['a'], scale=-1.5)")
    assert (target.module, target.name) == ("pkg.mod", "Name")
    assert target.arguments == (8,)
    assert target.keywords == {"keep": 2, "names": ["a"], "scale": -1.5}
    assert target.call == "Name(8, keep=2, names=['a'], scale=-1.5)"
    assert target.imports == ["from pkg.mod import Name"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pkg.mod.Name", "has no colon.*Did you mean 'pkg.mod:Name'"),
        ("caches.py", "has no colon"),
        (":Name", "names no module"),
        ("mod:", "names no class"),
        ("mod:Name(", "is not Python"),
        ("mod:Name(mx.array(3))", "is not a literal.*def make_cache"),
        ("mod:Name(**options)", "write the arguments out"),
        ("mod:names[0]", "is not a name"),
        ("mod:a + b", "is not a name"),
    ],
)
def test_a_bad_target_is_told_what_to_write(text, says):
    with pytest.raises(TargetError, match=f"(?s){says}"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no_such_module:X", "is 'no_such_module' installed"),
        ("reference_impl.nothing:X", "the package 'reference_impl' has no such module"),
        ("reference_impl:Nothing", "has no 'Nothing'.*KVCache"),
        ("reference_impl:SlidingWindowKVCache", r"raises TypeError.*SlidingWindowKVCache\(window="),
        ("reference_impl:SlidingWindowKVCache(0)", "raises ValueError"),
        ("nofile.py:X", "no file 'nofile.py'"),
        ("broken.py:X", "raises ModuleNotFoundError.*broken.py:1"),
        ("my caches.py:instance", "is an object of class Mine"),
        ("my caches.py:Raises", "raises OSError: no disk"),
        ("my caches.py:many(3)", "it takes no arguments"),
    ],
)
def test_a_target_that_cannot_be_used_says_why(file, text, says):
    with pytest.raises(TargetError, match=f"(?s){says}"):
        subjects_from_target(text, directory=file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("my caches.py:makes_a_list", "makes a list of 2, not one cache"),
        ("json:JSONDecoder", "nothing can be inferred of a json.decoder.JSONDecoder"),
    ],
)
def test_what_is_no_cache_is_told_so(file, text, says):
    (subject,) = subjects_from_target(text, directory=file)
    with pytest.raises(TargetError, match=says):
        examine(subject)


def test_files_modules_nested_classes_functions_and_subjects(file):
    for text in (
        "my caches.py:Mine",
        "my caches.py:make",
        "my caches.py:Nested.Inner",
        "local_caches:Mine",
        "reference_impl:KVCache()",
    ):
        (subject,) = subjects_from_target(text, directory=file)
        assert isinstance(subject.factory(), KVCache)
        assert subject.factory() is not subject.factory()
    names = [s.target for s in subjects_from_target("my caches.py:many", directory=file)]
    assert names == ["one", "two"]


def test_a_file_is_loaded_once(file):
    one, two = (subjects_from_target("my caches.py:Mine", directory=file)[0] for _ in range(2))
    assert type(one.factory()) is type(two.factory())


class Rotating(KVCache):
    def __init__(self, max_size, keep=0):
        super().__init__()
        self.max_size, self.keep = max_size, keep


class ArgumentOnly(KVCache):
    def __init__(self, sliding_window, head_dim=16):
        super().__init__()


class Chunked(KVCache):
    chunk_size = 4
    start_position = 0


@pytest.mark.parametrize(
    ("call", "visibility", "source"),
    [
        ("Rotating(8)", SlidingWindow(8), "declares max_size=8"),
        ("Rotating(8, keep=2)", Sinks(2, 8), "declares max_size=8, keep=2"),
        ("Rotating(8, keep=8)", SlidingWindow(8), "declares max_size=8"),
        ("ArgumentOnly(6)", SlidingWindow(6), "declares sliding_window=6"),
        ("Chunked()", Chunk(4), "declares chunk_size=4"),
    ],
)
def test_visibility_is_read_off_what_a_class_declares(call, visibility, source):
    (subject,) = subjects_from_target(f"{Path(__file__)}:{call}")
    claims = examine(subject).claims
    assert claims.visibility == visibility
    assert claims.source("visibility") == source


def test_without_a_declaration_a_cache_is_full_and_exact():
    claims = examine(subject_from_factory(KVCache)).claims
    assert claims.visibility == Full()
    assert claims.source("visibility") == "default"


def test_sizes_are_read_off_constructor_arguments():
    (subject,) = subjects_from_target(f"{Path(__file__)}:ArgumentOnly(6, head_dim=16)")
    assert examine(subject).claims.head_dims == ((16, 16),)


def test_every_claim_can_be_overridden():
    subject = subject_from_factory(
        partial(SlidingWindowKVCache, 8),
        name="window",
        claims={"visibility": "window(4)", "batch_sizes": [1], "head_dims": [[4, 4]]},
    )
    claims = examine(subject).claims
    assert claims.visibility == SlidingWindow(4)
    assert claims.batch_sizes == (1,)
    assert claims.head_dims == ((4, 4),)
    assert claims.source("batch_sizes") == "claimed"


@pytest.mark.parametrize(
    ("claims", "says"),
    [({"colour": 1}, "no claim 'colour'"), ({"visibility": "near"}, "'near' is no visibility")],
)
def test_a_bad_claim_says_what_there_is(claims, says):
    with pytest.raises(TargetError, match=says):
        examine(Subject("x", KVCache, claims=claims))
