"""The simulated world: SimPy moves the time, measured profiles say how long things take."""
