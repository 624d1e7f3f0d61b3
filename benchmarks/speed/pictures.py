"""Drawing of docs/performance.svg: costs against sizes, one panel for each curve."""

from collections.abc import Mapping

from benchmarks.speed.cases import CURVES, Curve
from benchmarks.speed.runner import ROOT, Figures

PICTURE = ROOT / "docs" / "performance.svg"
OURS, OTHER = "#1f6feb", "#8b949e"


def draw(figures: Mapping[str, Figures]) -> None:
    """Draw all curves; points without figures are omitted."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    # Without outlines of text, random ids and the date, the same figures give the same file.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "sweep", "font.size": 9}
    picture, axes = pyplot.subplots(1, len(CURVES), figsize=(3.2 * len(CURVES), 2.8))
    for panel, curve in zip(axes, CURVES, strict=True):
        for label, colour, sizes, values in lines(curve, figures):
            panel.plot(sizes, values, marker="o", markersize=3, color=colour, label=label)
        panel.set(title=curve.title, xlabel=curve.size, ylabel=curve.unit)
        is_wide = curve.points[-1][0] > 10 * curve.points[0][0]
        panel.set_xscale("log" if is_wide else "linear")
        panel.set_yscale("log" if curve.other else "linear")
        if not curve.other:
            panel.set_ylim(bottom=0)
        if not is_wide:
            panel.set_xticks([size for size, _ in curve.points])
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    picture.tight_layout()
    picture.savefig(PICTURE, metadata={"Date": None})
    pyplot.close(picture)


def lines(
    curve: Curve, figures: Mapping[str, Figures]
) -> list[tuple[str, str, list[int], list[float]]]:
    """Return (label, colour, sizes, medians) of each line of a panel: ours, and maybe another."""
    measured = [
        (size, figures[case.name])
        for size, case in curve.points
        if case.name in figures and figures[case.name].pairs
    ]
    sides = [("sweep", OURS, "ours"), *([(curve.other, OTHER, "other")] if curve.other else [])]
    sizes = [size for size, _ in measured]
    return [
        (label, colour, sizes, [one.median(side) for _, one in measured])
        for label, colour, side in sides
    ]
