"""Draws what growth costs, counted: ``python docs/curves.py`` writes docs/figures/growth.svg."""

from __future__ import annotations

import math
from pathlib import Path

import mlx_lm.models.cache  # noqa: F401 (compared with; fails here and now if it is not there)

from conformance.bench import Candidate, Layer, moved_rows
from conformance.subject import examine, subjects_from_target

TOKENS = 32768
CACHES = (
    ("mlx_lm.models.cache:ConcatenateKVCache()", "concatenate at every append", "#b5361c", ""),
    ("mlx_lm.models.cache:KVCache()", "grow by 256 rows (mlx-lm)", "#8a6d00", "8 4"),
    ("reference_impl:KVCache()", "grow by half (reference)", "#1c6db5", "2 4"),
)
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 400, 64, 48, 16


def moved(target: str) -> list[int]:
    (subject,) = subjects_from_target(target)
    candidate = Candidate(examine(subject), Layer(1, 1, 8, 8, "float16"))
    return moved_rows(candidate, TOKENS)


def place(tokens: float, rows: float) -> tuple[float, float]:
    """Where a point lies in the picture; both axes are logarithmic."""
    across = math.log2(tokens / 64) / math.log2(TOKENS / 64)
    up = math.log10(max(rows, 100) / 100) / math.log10(1e9 / 100)
    return (
        LEFT + across * (WIDTH - LEFT - 16),
        HEIGHT - BOTTOM - up * (HEIGHT - BOTTOM - TOP),
    )


def picture() -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="sans-serif" font-size="13">',
        "<title>Rows copied while a cache grows to 32768 tokens, one by one</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(2, 10):
        x, y = place(64, 10**power)
        lines.append(f'<path d="M{x} {y:.1f}H{WIDTH - 16}" stroke="#ddd"/>')
        lines.append(f'<text x="{x - 8}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
    for tokens in (64, 256, 1024, 4096, 16384):
        x, _ = place(tokens, 100)
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - 28}" text-anchor="middle">{tokens}</text>')
    lines.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">tokens appended, one by '
        "one; up: rows copied so far</text>"
    )
    for index, (target, label, colour, dashes) in enumerate(CACHES):
        counts = moved(target)
        steps = sorted({round(64 * 2 ** (n / 8)) for n in range(8 * 9 + 1)})
        points = [place(step, counts[step - 1]) for step in steps if step <= TOKENS]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        stroke = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        y = TOP + 20 + 20 * index
        lines.append(f'<polyline points="{path}" {stroke}/>')
        lines.append(f'<path d="M{LEFT + 16} {y - 4}h40" {stroke}/>')
        lines.append(f'<text x="{LEFT + 64}" y="{y}">{label}: {counts[-1]} rows</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    folder = Path(__file__).parent / "figures"
    folder.mkdir(exist_ok=True)
    (folder / "growth.svg").write_text(picture(), encoding="utf-8")
