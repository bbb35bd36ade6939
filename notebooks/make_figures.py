"""Make the pictures of the README, or figure 1 of arXiv:2509.25153 with its table.

python notebooks/make_figures.py [readme]
python notebooks/make_figures.py figure-1 [--dimension 1000] [--seeds 16] [--output figure-1.svg]

figure-1: test error and training loss of attention, the pooled and the vectorised linear model against alpha_1, square
and logistic loss, at theta = 5, L = 10, R = 1, pi = 1/2, lambda = 1e-5. Dimensions d/4, d/2 and d are simulated; the
vectorised model has L d <= 2000 weights. Exits with 1 if a number disagrees; at d = 1000 with 16 seeds, half an hour.
"""

import argparse
import sys
from pathlib import Path

import limitlaw
from verify.along import Curve, along, table
from verify.curve_figure import curve_figure, figure_text
from verify.report import figure_svg
from verify.verdict import Tolerance, Verdict

IMAGES = Path(__file__).parent / "images"
LOSSES = ("square", "logistic")
MODELS = {
    "attention": "sparse-token-protocol",
    "pooled": "sparse-token-pooled",
    "vectorised": "sparse-token-vectorised",
}
QUANTITIES = ("test_error", "training_loss")
LENGTH = 10
MOST_WEIGHTS = 2000
GRID = tuple(0.25 * k for k in range(1, 33))
POINTS = (0.5, 1.2, 2, 4, 6, 8)
FALSE_ALARM = 1e-6


def readme() -> int:
    """The picture of the README."""
    checked = limitlaw.verify(limitlaw.derive(limitlaw.load("h2sum-tied-relu")))
    (IMAGES / "h2sum-tied-relu.svg").write_text(figure_svg(checked), encoding="utf-8")
    return 0


def curve(model: str, loss: str, dimension: int, seeds: int) -> Curve:
    """One model with one loss, all curves together at FALSE_ALARM."""
    largest = min(dimension, MOST_WEIGHTS // LENGTH) if model == "vectorised" else dimension
    return along(
        limitlaw.derive(limitlaw.load(MODELS[model], {"loss": loss})),
        *("alpha1", GRID, POINTS),
        quantities=QUANTITIES,
        dimensions=(largest // 4, largest // 2, largest),
        seeds=seeds,
        name=model,
        tolerance=Tolerance(FALSE_ALARM).share(len(LOSSES) * len(MODELS)),
        progress=lambda line: print(f"{loss}, {line}", file=sys.stderr),
    )


def figure_1(dimension: int, seeds: int, output: Path) -> int:
    """The figure and its table."""
    columns = {loss: [curve(model, loss, dimension, seeds) for model in MODELS] for loss in LOSSES}
    output.write_text(figure_text(curve_figure(columns, QUANTITIES)), encoding="utf-8")
    for loss, curves in columns.items():
        print(f"\n{loss}\n\n{table(curves)}")
    rows = [r for curves in columns.values() for c in curves for r in c.rows]
    worst = max((abs(r.z) for r in rows if abs(r.mean - r.predicted) > r.rounding), default=0.0)
    verdicts = {v: sum(r.verdict is v for r in rows) for v in Verdict}
    counts = ", ".join(f"{n} {v.name}" for v, n in verdicts.items())
    print(f"\n{len(rows)} numbers at a false-alarm rate of {FALSE_ALARM:g}: {counts}; the largest |z| is {worst:.2f}.")
    return int(verdicts[Verdict.disagrees] > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=["readme", "figure-1"], nargs="?", default="readme")
    parser.add_argument("--dimension", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--output", type=Path, default=Path("figure-1.svg"))
    given = parser.parse_args()
    sys.exit(readme() if given.figure == "readme" else figure_1(given.dimension, given.seeds, given.output))
