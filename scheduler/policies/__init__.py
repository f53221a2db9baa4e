"""The policies, by name. One file each."""

from scheduler.policies.clockwork import Clockwork
from scheduler.policies.edf import Edf
from scheduler.policies.fifo import Fifo

POLICIES = {"clockwork": Clockwork, "edf": Edf, "fifo": Fifo}
