"""The brains: what a controller decides, what a worker does with it. No clock, no I/O, no threads."""
