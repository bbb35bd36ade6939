"""Make the pictures of the README, figure 1 of arXiv:2509.25153, or the curves of attention-indexed models.

python notebooks/make_figures.py [readme]
python notebooks/make_figures.py figure-1 [--dimension 1000] [--seeds 16] [--output figure-1.svg]
python notebooks/make_figures.py attention-indexed [--dimension 80] [--seeds 16] [--output attention-indexed.svg]

figure-1: test error and training loss of attention, the pooled and the vectorised linear model against alpha_1, square
and logistic loss, at theta = 5, L = 10, R = 1, pi = 1/2, lambda = 1e-5. Dimensions d/4, d/2 and d are simulated; the
vectorised model has L d <= 2000 weights. At d = 1000 with 16 seeds, half an hour.

attention-indexed: test error and training loss of a softmax of T = 2 tokens against alpha, lambda = 0.01 and 0.1,
kappa0 = Delta = 1/2 (arXiv:2509.24914); dimensions d/2, 3 d/4 and d, a multiple of 8, are simulated.

Both print a table of z and exit with 1 if a number disagrees.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
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
DECAYS = ("0.01", "0.1")
SAMPLES_GRID = tuple(0.05 * 80 ** (k / 24) for k in range(25))
SAMPLES_POINTS = (0.0625, 0.125, 0.25, 0.5, 1, 2, 4)
EIGHTHS = 8


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
    return _reported(columns, output)


def attention_indexed(dimension: int, seeds: int, output: Path) -> int:
    """Both decays, with a table."""
    if dimension % EIGHTHS:
        raise SystemExit(f"--dimension is {dimension}; it must be a multiple of {EIGHTHS}: ranks are d/2 at each size.")
    curves = [
        along(
            limitlaw.derive(limitlaw.load("aim-softmax", {"lam": decay})),
            *("alpha", SAMPLES_GRID, SAMPLES_POINTS),
            quantities=QUANTITIES,
            dimensions=(dimension // 2, 3 * dimension // 4, dimension),
            seeds=seeds,
            name=f"$\\lambda = {decay}$",
            tolerance=Tolerance(FALSE_ALARM).share(len(DECAYS)),
            progress=lambda line: print(line, file=sys.stderr),
        )
        for decay in DECAYS
    ]
    return _reported({"softmax": curves}, output)


def _reported(columns: Mapping[str, Sequence[Curve]], output: Path) -> int:
    """Draw the figure, print its tables; 1 if a number disagrees."""
    output.write_text(figure_text(curve_figure(columns, QUANTITIES)), encoding="utf-8")
    for title, curves in columns.items():
        print(f"\n{title}\n\n{table(curves)}")
    rows = [r for curves in columns.values() for c in curves for r in c.rows]
    worst = max((abs(r.z) for r in rows if abs(r.mean - r.predicted) > r.rounding), default=0.0)
    verdicts = {v: sum(r.verdict is v for r in rows) for v in Verdict}
    counts = ", ".join(f"{n} {v.name}" for v, n in verdicts.items())
    print(f"\n{len(rows)} numbers at a false-alarm rate of {FALSE_ALARM:g}: {counts}; the largest |z| is {worst:.2f}.")
    return int(verdicts[Verdict.disagrees] > 0)


def main() -> int:
    """The figure that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=["readme", "figure-1", "attention-indexed"], nargs="?", default="readme")
    parser.add_argument("--dimension", type=int)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    output = given.output or Path(f"{given.figure}.svg")
    match given.figure:
        case "figure-1":
            return figure_1(given.dimension or 1000, given.seeds, output)
        case "attention-indexed":
            return attention_indexed(given.dimension or 80, given.seeds, output)
        case _:
            return readme()


if __name__ == "__main__":
    sys.exit(main())
