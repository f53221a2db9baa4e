"""The policies, by name. One file each."""

from scheduler.policies.clipper import Clipper01, Clipper03, ClipperAimd, ClipperQuantile
from scheduler.policies.clipper_selection import ClipperExp3, ClipperExp4
from scheduler.policies.clockwork import Clockwork
from scheduler.policies.dynamic_batching import DynamicBatching
from scheduler.policies.edf import Edf
from scheduler.policies.fifo import Fifo

POLICIES = {
    "clockwork": Clockwork,
    "edf": Edf,
    "fifo": Fifo,
    "dynamic_batching": DynamicBatching,
    "clipper-nsdi-aimd": ClipperAimd,
    "clipper-nsdi-quantile": ClipperQuantile,
    "clipper-exp3": ClipperExp3,
    "clipper-exp4": ClipperExp4,
    "clipper-0.3": Clipper03,
    "clipper-0.1": Clipper01,
}
