"""The figures of the Clipper paper (NSDI '17), and Clipper 0.3 beside Clockwork.

The numbers held against ours are the authors' own: the repository of their plots and the raw
results in it. What containers cost is made of them too (`containers.py`): what was used for that is
called `fitted` and does not count.
Not judged: figure 10 (personalisation), whose speakers are generated.
"""

FIGURES = (
    "fig3",
    "fig4",
    "fig5",
    "fig6",
    "fig7",
    "fig8",
    "fig9",
    "fig10",
    "fig11",
    "cache",
    "sharing",
    "clockwork",
)
"""In the order in which they are made, modules of this package."""
