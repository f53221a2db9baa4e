"""What a model costs on a device: how large it is, how long it loads, how long a batch takes.

    from profiles import find
    resnet50 = find("clockwork_v100/resnet50_v2")[0]
    resnet50.at_batch(4).estimate_ns(0.99)

Not here: who asks for the models (see workloads/) and what shares the device (see sim/).
"""

from profiles.durations import Constant, Durations, Quantiles, Samples
from profiles.errors import ProfileError, ProfileWarning
from profiles.reader import read
from profiles.schema import Profile
from profiles.store import find, stores

__all__ = [
    "Constant",
    "Durations",
    "Profile",
    "ProfileError",
    "ProfileWarning",
    "Quantiles",
    "Samples",
    "find",
    "read",
    "stores",
]
