"""The real world: a controller, its worker processes, and what they run actions on."""
