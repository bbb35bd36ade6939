"""Make the pictures of the README: python notebooks/make_figures.py"""

from pathlib import Path

import limitlaw
from verify.report import figure_svg

IMAGES = Path(__file__).parent / "images"

if __name__ == "__main__":
    checked = limitlaw.verify(limitlaw.derive(limitlaw.load("h2sum-tied-relu")))
    (IMAGES / "h2sum-tied-relu.svg").write_text(figure_svg(checked), encoding="utf-8")
