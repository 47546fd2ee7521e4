"""Writes the pages that follow from code: ``python docs/build.py``.

They are the spec, the profiles, the contents of the API reference and the failure that the start
page shows. A test fails when a page is not what this writes.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

import conformance
import kvproto.capability
import kvproto.kinds
import kvproto.visibility
import reference_impl.masks
from conformance import check
from conformance.config import REFERENCE
from conformance.engine import CHECKS
from conformance.profiles import CONSUMERS, Answer, Consumer
from conformance.report.terminal import render
from conformance.subject import examine, subjects_from_target
from kvproto.clause import REGISTRY, SPEC_VERSION, Clause, Contract

DOCS = Path(__file__).parent
ROOT = DOCS.parent


def issue(fault: str) -> str:
    repository, _, number = fault.partition("#")
    return f"[{fault}](https://github.com/{repository}/issues/{number})"


def code(name: str, module: str) -> str:
    """A link to the file of a function or class, which the site turns into one to its reference."""
    path = Path(inspect.getfile(sys.modules[module])).relative_to(ROOT)
    return f"[`{name}`](../../{path.as_posix()})"


def clause_text(clause: Clause) -> str:
    lines = [f"## {clause.id} ({clause.level})", "", f"> {clause.sentence}", "", clause.why, ""]
    if clause.relied_on_by:
        lines += ["Relied on by:", "", *(f"- {one}" for one in clause.relied_on_by), ""]
    if clause.faults:
        lines += [f"Broken in public by {', '.join(map(issue, clause.faults))}.", ""]
    test = CHECKS[clause.id]
    builds = f" It builds on {', '.join(test.needs)}." if test.needs else ""
    named = code(test.name, test.function.__module__)
    lines += [f"Test: {named}.{builds} Since {clause.since}.", ""]
    return "\n".join(lines)


def protocols_of(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and getattr(value, "_is_protocol", False)
    ]


def page(contract: Contract) -> str:
    module = sys.modules[f"kvproto.contracts.{module_of(contract)}"]
    protocols = protocols_of(module)
    about = (module.__doc__ or "").strip().partition("\n\n")[2]
    lines = [f"# {contract.title}", "", contract.summary, ""]
    if about:
        lines += [textwrap.dedent(about), ""]
    if protocols:
        named = ", ".join(code(f"{module.__name__}.{name}", module.__name__) for name in protocols)
        lines += [f"Protocols: {named}.", ""]
    classes = [cls for cls, names in reference_classes().items() if contract.name in names]
    if classes:
        named = ", ".join(code(f"reference_impl.{c.__name__}", c.__module__) for c in classes)
        lines += [f"Reference implementations: {named}.", ""]
    return "\n".join(lines) + "\n" + "\n".join(map(clause_text, contract.clauses))


@cache
def reference_classes() -> dict[type, set[str]]:
    """The contracts that apply to each reference cache."""
    found: dict[type, set[str]] = {}
    for subject in (one for text in REFERENCE for one in subjects_from_target(text)):
        cls = type(subject.factory())
        found.setdefault(cls, set()).update(examine(subject).contracts)
    return found


def module_of(contract: Contract) -> str:
    return contract.name.replace("-", "")


def index() -> str:
    lines = [
        "# The spec",
        "",
        f"Version {SPEC_VERSION}. {len(REGISTRY)} clauses. A cache is a view of a token log: "
        "append, trim, copy, merge are operations on logs, and what a cache returns, with the mask "
        "that it made, gives the attention of dense attention over the log under its declared "
        "visibility.",
        "",
        "MUST decides, and names a consumer that breaks without it; SHOULD is a hazard.",
        "",
        "| contract | clauses | what it says |",
        "|---|---|---|",
    ]
    for contract in REGISTRY.contracts:
        name = f"[{contract.title}]({contract.name}.md)"
        lines.append(f"| {name} | {len(contract.clauses)} | {contract.summary} |")
    return "\n".join(lines) + "\n"


def consumer_text(consumer: Consumer) -> str:
    lines = [f"## {consumer.name}", "", consumer.about, ""]
    lines += [f"For layers of the kind {' or '.join(consumer.kinds)}.", ""]
    if consumer.members:
        lines += ["| calls | in | without it |", "|---|---|---|"]
        for member in consumer.members:
            of = f" (of {' and '.join(member.kinds)} caches)" if member.kinds else ""
            effect = "silently: " if member.degraded else ""
            lines.append(f"| `{member.name}`{of} | {member.function} | {effect}{member.absent} |")
        lines.append("")
    lines += ["| relies on | in | for | broken |", "|---|---|---|---|"]
    for need in consumer.needs:
        ids = [clause for clause in need.clauses if clause in REGISTRY]
        links = [f"[{one}](spec/{REGISTRY.contract_of(one).name}.md)" for one in ids]
        told = {Answer.DEGRADED: need.lost, Answer.NOT_JUDGED: need.unsure}.get(need.answer, "")
        broken = f"{need.answer}: {told}" if told else str(need.answer)
        if ids:
            lines.append(f"| {', '.join(links)} | {need.function} | {need.why} | {broken} |")
    lines.append("")
    if consumer.issues:
        lines += [f"Public issues: {', '.join(map(issue, consumer.issues))}.", ""]
    return "\n".join(lines)


def profiles() -> str:
    """The page of the consumers."""
    lines = [
        "# Works with what?",
        "",
        "What real consumers need of a cache, by the function that relies on it. `kvproto check` "
        "answers for each: yes; no, with the clauses that stand in the way; degraded, where it "
        "runs and silently does less; or not judged, where what fails may be something that the "
        "consumer never does. `kvproto explain mlx-lm:speculative` prints one of them.",
        "",
    ]
    return "\n".join(lines) + "\n" + "\n".join(map(consumer_text, CONSUMERS.values()))


def heading(title: str, mark: str) -> list[str]:
    return [title, mark * len(title), ""]


def entries(package: ModuleType, names: Iterable[str]) -> list[str]:
    """Lines that document names of a package from their docstrings."""
    lines = []
    for name in names:
        value = getattr(package, name)
        directive = "autodata"
        if isinstance(value, type):
            directive = "autoclass"
        elif inspect.isfunction(value):
            directive = "autofunction"
        lines += [f".. {directive}:: {package.__name__}.{name}", ""]
    return lines


def exported(module: ModuleType) -> list[str]:
    """The names of kvproto that come from one of its modules, in the order of its lines."""
    return [name for name in vars(module) if name in kvproto.__all__ and defines(module, name)]


def defines(module: ModuleType, name: str) -> bool:
    value = vars(module)[name]
    if isinstance(value, type) or inspect.isfunction(value):
        return value.__module__ == module.__name__
    return re.search(rf"^{name}\s*[:=]", inspect.getsource(module), re.MULTILINE) is not None


def spec_reference() -> str:
    """What kvproto offers beside the protocols of the contracts."""
    lines = [
        *heading("kvproto", "="),
        "All of it can be imported from ``kvproto`` itself, which needs neither mlx nor pytest.",
        "",
    ]
    modules = (
        ("Capabilities", kvproto.capability),
        ("Kinds of cache", kvproto.kinds),
        ("Visibility", kvproto.visibility),
        ("Clauses", kvproto.clause),
    )
    for title, module in modules:
        about = (module.__doc__ or "").strip()
        lines += [*heading(title, "-"), about, "", *entries(kvproto, exported(module))]
    return "\n".join(lines)


def contracts_reference() -> str:
    """The protocols, by contract."""
    lines = heading("Protocols", "=")
    for contract in REGISTRY.contracts:
        module = sys.modules[f"kvproto.contracts.{module_of(contract)}"]
        if protocols_of(module):
            lines += [*heading(contract.title, "-"), f"See :doc:`/spec/{contract.name}`.", ""]
            lines += [f".. automodule:: {module.__name__}", ""]
    return "\n".join(lines)


def tests_reference() -> str:
    """The test of each clause."""
    lines = heading("Tests of the clauses", "=")
    for contract in REGISTRY.contracts:
        lines += heading(contract.title, "-")
        for clause in contract.clauses:
            lines += [f".. autofunction:: {CHECKS[clause.id].name}(ctx)", ""]
            lines += [f"   **{clause.id}** ({clause.level}): {literals(clause.sentence)}", ""]
    return "\n".join(lines)


def literals(text: str) -> str:
    """Markdown's code marks as those of reStructuredText."""
    return text.replace("`", "``")


def suite_reference() -> str:
    lines = [*heading("conformance", "="), "The suite from Python, without pytest.", ""]
    names = sorted(conformance.__all__, key=lambda name: name != "check")
    return "\n".join([*lines, *entries(conformance, names)])


def caches_reference() -> str:
    lines = [*heading("reference_impl", "="), "One implementation of every kind of cache.", ""]
    lines += entries(reference_impl, reference_impl.__all__)
    lines += [*heading("Masks", "-"), (reference_impl.masks.__doc__ or "").strip(), ""]
    names = ("attention_mask", "padded_attention_mask")
    return "\n".join([*lines, *entries(reference_impl.masks, names)])


FAILURE = ("mlx_lm.models.cache:ConcatenateKVCache", "TRIM-1")
"""What the start page shows."""


def start(text: str) -> str:
    """The start page with its failure as it is printed today."""
    target, clause = FAILURE
    shown = render([check(target, clauses=[clause])]).strip().partition(f"\n{target}\n")[0]
    before, mark, rest = text.partition("<!-- failure -->\n")
    after = rest.partition("\n```\n")[2]
    return f"{before}{mark}```text\n{shown.rstrip()}\n```\n{after}"


def pages() -> dict[str, str]:
    """The content of every page by its path below docs."""
    return {
        "profiles.md": profiles(),
        "spec/index.md": index(),
        **{f"spec/{contract.name}.md": page(contract) for contract in REGISTRY.contracts},
        "api/kvproto.rst": spec_reference(),
        "api/protocols.rst": contracts_reference(),
        "api/tests.rst": tests_reference(),
        "api/conformance.rst": suite_reference(),
        "api/reference_impl.rst": caches_reference(),
    }


def main() -> None:
    written = {DOCS / name: text for name, text in pages().items()}
    for stale in set((DOCS / "spec").glob("*.md")) - set(written):
        stale.unlink()
    for path, text in written.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    page = DOCS / "index.md"
    page.write_text(start(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
