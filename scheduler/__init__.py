"""The brains: what a controller decides, what a worker does with it; no clock, no I/O."""
