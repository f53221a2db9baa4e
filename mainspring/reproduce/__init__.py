"""Reproduce what others measured, and say how far we are from it.

Each quantity is a row (`mainspring.reproduce.rows`): what the reference says and who made it, what
we obtain, the difference, the tolerance, the verdict.

    original    the original Clockwork controller, run with its own emulated GPUs
    fig*.py     the figures of the Clockwork paper
    clipper/    the figures of the Clipper paper
"""
