"""What can be wrong with a profile."""


class ProfileError(ValueError):
    """A profile is missing or wrong. The message is one line: what, its value, the way out."""


class ProfileWarning(UserWarning):
    """A profile is odd, and is used as it is."""
