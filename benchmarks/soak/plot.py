"""A plot of what was seen of a flow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.soak.samples import Sample
from benchmarks.soak.trends import MEASURES


def plot(samples: Sequence[Sample], title: str, file: Path) -> None:
    """A panel for each measure; what is judged has a grey ground."""
    minutes = [sample.seconds / 60 for sample in samples]
    figure = Figure(figsize=(9, 10), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(len(MEASURES), sharex=True)
    for panel, (name, measure) in zip(panels, MEASURES.items(), strict=True):
        values = [getattr(sample, name) / measure.unit for sample in samples]
        panel.plot(minutes, values, linewidth=1)
        panel.axvspan(minutes[-1] / 3, minutes[-1], color="0.93")
        panel.set_ylim(0, 1.1 * max(values))
        panel.set_title(measure.title, loc="left", fontsize="medium")
    panels[-1].set_xlabel("minutes")
    # The same samples give the same file.
    with mpl.rc_context({"svg.hashsalt": "soak"}):
        figure.savefig(file, metadata={"Date": None})
