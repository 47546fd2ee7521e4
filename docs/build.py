"""Writes the pages of the spec from the clauses: ``python docs/build.py``.

A test fails when a page is not what this writes.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import conformance.checks  # noqa: F401 (registers the checks)
from conformance.engine import CHECKS
from conformance.profiles import CONSUMERS, Answer, Consumer
from kvproto.clause import REGISTRY, SPEC_VERSION, Clause, Contract

PAGES = Path(__file__).parent / "spec"
PROFILES = Path(__file__).parent / "profiles.md"


def issue(fault: str) -> str:
    repository, _, number = fault.partition("#")
    return f"[{fault}](https://github.com/{repository}/issues/{number})"


def clause_text(clause: Clause) -> str:
    lines = [f"### {clause.id} ({clause.level})", "", f"> {clause.sentence}", "", clause.why, ""]
    if clause.relied_on_by:
        lines += ["Relied on by:", "", *(f"- {one}" for one in clause.relied_on_by), ""]
    if clause.faults:
        lines += [f"Broken in public by {', '.join(map(issue, clause.faults))}.", ""]
    check = CHECKS[clause.id]
    builds = f" It builds on {', '.join(check.needs)}." if check.needs else ""
    lines += [f"Test: `{check.name}`.{builds} Since {clause.since}.", ""]
    return "\n".join(lines)


def page(contract: Contract) -> str:
    module = sys.modules[f"kvproto.contracts.{module_of(contract)}"]
    protocols = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and getattr(value, "_is_protocol", False)
    ]
    about = (module.__doc__ or "").strip().partition("\n\n")[2]
    lines = [f"# {contract.title}", "", contract.summary, ""]
    if about:
        lines += [textwrap.dedent(about), ""]
    if protocols:
        named = ", ".join(f"`{module.__name__}.{name}`" for name in protocols)
        lines += [f"Protocols: {named}.", ""]
    return "\n".join(lines) + "\n" + "\n".join(map(clause_text, contract.clauses))


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


def pages() -> dict[str, str]:
    """The content of every page by file name."""
    return {
        "index.md": index(),
        **{f"{contract.name}.md": page(contract) for contract in REGISTRY.contracts},
    }


def main() -> None:
    PAGES.mkdir(exist_ok=True)
    PROFILES.write_text(profiles(), encoding="utf-8")
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    for stale in set(PAGES.glob("*.md")) - {PAGES / name for name in pages()}:
        stale.unlink()


if __name__ == "__main__":
    main()
