"""A scenario: which models, on which cluster, under which traffic and which policies.

A scenario is a TOML file (see scenarios/). It is read strictly: what is not known is an error,
with a suggestion. What comes out is complete: overrides applied, defaults filled in, paths
absolute, so that it can be written down and run again.
Not here: running it (mainspring.run), and how errors find their line (mainspring.document).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import tomli_w
from msgspec import Meta

from mainspring.document import Document, Key, ScenarioError, key_lines, show
from mainspring.policies import find_policy, policy_file
from profiles import Profile, ProfileError, find
from profiles.store import DATA
from scheduler.faults import Fault, WorkerKilled
from scheduler.policies import POLICIES
from workloads import Workload, WorkloadError

__all__ = ["Scenario", "ScenarioError", "build_scenario", "load_scenario"]

Positive = Annotated[float, Meta(gt=0, le=1e9)]
NotNegative = Annotated[float, Meta(ge=0, le=1e9)]
Count = Annotated[int, Meta(ge=1, le=10**9)]


Varying = NotNegative | Annotated[list[NotNegative], Meta(min_length=1)]
"""Always the same, or one of these each time."""


class DelaysUs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the platform adds to the work itself, in microseconds.

    One number is always the same; of several, as they were measured, one is drawn each time.
    poll: how long an event lies in the controller's inbox until its polling loop sees it.
    wake: how much later it sees that a time has come which the policy asked for.
    worker_gap: idle time of an engine between two actions. overrun: what loads and batches take
    beyond a profile that has one number for them. load_to_controller: of loads and unloads, where
    worker_to_controller is of batches alone. decision_*: the controller's own time; while it works,
    events wait in its inbox.
    """

    client_to_controller: Varying = 0.0
    poll: NotNegative = 0.0
    wake: Varying = 0.0
    controller_to_worker: Varying = 0.0
    worker_gap: Varying = 0.0
    overrun: Varying = 0.0
    worker_to_controller: Varying = 0.0
    load_to_controller: Varying | None = None
    controller_to_client: NotNegative = 0.0
    decision_per_event: NotNegative = 0.0
    decision_per_action: NotNegative = 0.0

    def each(self) -> dict[str, list[float]]:
        """What each of them may be, but for what is not told apart."""
        given = msgspec.structs.asdict(self)
        return {
            name: us if isinstance(us, list) else [us]
            for name, us in given.items() if us is not None
        }  # fmt: skip

    def any(self) -> bool:
        """Whether there are delays at all."""
        return any(map(any, self.each().values()))


class ClockSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From from_s on the cores of a GPU run at mhz; without gpu, those of all GPUs do.

    A batch takes its profile's time at 1380 MHz, and the more the lower the clock is.
    """

    mhz: Annotated[int, Meta(ge=1, le=100_000)]
    from_s: NotNegative = 0.0
    gpu: Annotated[int, Meta(ge=0)] | None = None


class LinkSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The link from the controller to the workers, over which batches' inputs go (sim/link.py).

    sends: how many may be under way at once; the others wait. send_by_ms: a batch has to be on its
    way so long before its window closes, or it is not sent. Both as in Clockwork's artifact.
    """

    gbit_per_s: Positive = 10.0
    sends: Count = 2
    send_by_ms: NotNegative = 5.0


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The GPUs, all alike. pages: each one's room for weights, in pages of page_mib.

    headroom: the share of them that is kept back, for what is free and still not usable: what a
    runtime keeps after an unload, and holes between allocations.
    memory: whether a model lies on any free pages, or has to lie in one piece.
    noise: v100 spreads constant durations as an exclusive V100 does (sim/varying.py); those of a
    profile that has quantiles or samples vary by themselves.
    clocks: when the clock of a GPU changes, and to what.
    link: what inputs go over on their way to the workers; without it they take no time.
    lanes: batches that a GPU may have in flight. Above 1 it is shared as containers share it:
    they slow each other down, as measured (sim/shared.py). A policy that uses one lane has the
    GPU to itself.
    stretch: batches take so many times what profiles that vary say (constants have
    delays_us.overrun): a device under load is not as it was when it was measured.
    engines: 2 where loads and batches run side by side, as on a GPU; 1 where they take turns, as
    on one core of a CPU.
    """

    gpus: Count = 1
    lanes: Count = 1
    engines: Literal[1, 2] = 2
    page_mib: Count = 16
    pages: Annotated[
        Count, Meta(description="a GPU's room for weights, in pages of page_mib, by default 16 MiB")
    ]
    headroom: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    memory: Literal["pages", "contiguous"] = "pages"
    noise: Literal["none", "v100"] = "none"
    clocks: list[ClockSpec] = []
    link: LinkSpec | None = None
    delays_us: DelaysUs = DelaysUs()
    stretch: Positive = 1.0

    @property
    def kept_pages(self) -> int:
        """What is kept back on each GPU."""
        return round(self.pages * self.headroom)

    @property
    def usable_pages(self) -> int:
        """What weights may take on each GPU."""
        return self.pages - self.kept_pages


class InputsSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which input each request brings, for prediction caches. different: how many there are.

    zipf: input number i is asked for in proportion to 1 / i ** zipf; 0 makes all equal.
    """

    different: Count
    zipf: NotNegative = 0.0


class AnswersSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What models say to requests, for policies that choose among them.

    errors: the share that each model gets wrong, in the order of the models; one number is for all.
    labels: how many there are. alike: how far models err on the same requests, from 0 to 1;
    confused: how often wrong answers are the same. feedback_ms: how long after an answer its client
    says what would have been right; without it nobody does.
    """

    errors: list[Annotated[float, Meta(ge=0, le=1)]]
    labels: Annotated[int, Meta(ge=2, le=10**6)] = 10
    alike: Annotated[float, Meta(ge=0, le=1)] = 0.5
    confused: Annotated[float, Meta(ge=0, le=1)] = 0.5
    feedback_ms: NotNegative | None = None


class ModelsSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some models. profile: one profile, or a pattern for several. copies: instances of each.

    model: what a live worker runs, such as "bert-tiny" (`executor/models.py`); `spin` keeps its
    engine busy for the profile's time. The simulation knows the profile only.
    """

    profile: str
    copies: Count = 1
    model: str = "spin"
    slo_ms: Positive | None = None


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a scenario file says.

    duration_s: the length of the arrivals. warmup_s: requests that arrive before it are left out
    of the summary. drain_s: how long the run goes on after the last arrival; what is left then is
    unfinished. faults: what goes wrong, and when (scheduler/faults.py).
    asks: which inputs the requests bring; without it none is equal to another. answers: what the
    models say to them; in simulation only.
    slo_ms: the default for all models; without one there are no deadlines.
    policy: parameters by label, as the policy's own Params has them, and `name` where the label
    is not the policy's name. inputs: sha256 of each file and profile store that a recorded
    scenario was run with.
    """

    name: Annotated[
        str, Meta(pattern=r"^[\w.-]+$", description="what tables and pictures call the scenario")
    ]
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    duration_s: Positive
    warmup_s: NotNegative = 0.0
    drain_s: NotNegative = 1.0
    slo_ms: Positive | None = None
    cluster: ClusterSpec
    models: list[ModelsSpec] = []
    workload: list[Workload] = []
    asks: InputsSpec | None = None
    answers: AnswersSpec | None = None
    faults: list[Fault] = []
    policy: dict[str, Any] = {}
    inputs: dict[str, str] = {}


class Model(msgspec.Struct, frozen=True):
    """One model of a run. slo_ns: None where its requests have no deadline. runs: what a live
    worker runs for it."""

    name: str
    profile: Profile
    slo_ns: int | None
    runs: str


class PolicyChoice(msgspec.Struct, frozen=True):
    """A policy and its parameters, under a label. name: as `find_policy` takes it."""

    label: str
    name: str
    policy: Any
    params: Any

    def build(self) -> Any:
        """A fresh policy."""
        return self.policy(self.params)


SERVED: Final = "arrivals.parquet"
"""What `mainspring serve` was asked, beside the scenario that plays it again."""
_NOT_SERVED: Final = (
    ": serve writes it when it ends in order and has been asked anything; run what it served, the "
    "scenario file, instead"
)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario that has been checked and can be run.

    written: keys that the file or the command line gave; all others are defaults.
    """

    spec: Spec
    models: tuple[Model, ...]
    policies: tuple[PolicyChoice, ...]
    overrides: tuple[str, ...]
    written: frozenset[Key]

    def choose(self, names: Sequence[str]) -> tuple[PolicyChoice, ...]:
        """The policies to run, in that order; those of the scenario if no names are given.

        A name is a label of the scenario, or else a policy as `find_policy` takes it, which runs
        with its own defaults. Raises ScenarioError if there is none, or two of one label.
        """
        known = {choice.label: choice for choice in self.policies}
        chosen = tuple(known.get(name) or _with_defaults(name) for name in names) or self.policies
        if not chosen:
            raise ScenarioError(
                f"{self.spec.name} has no policy; add a table such as [policy.clockwork], "
                "or give --policy"
            )
        if any(isinstance(fault, WorkerKilled) for fault in self.spec.faults):
            for choice in chosen:
                if not hasattr(choice.policy, "on_worker"):
                    raise ScenarioError(
                        f"faults kill a worker, but policy {choice.label} has no on_worker to hear "
                        "of it; see StandsLoss in scheduler/policy.py"
                    )
        labels = [choice.label for choice in chosen]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise ScenarioError(f"two policies have the label {twice}; give each its own")
        return chosen

    def to_toml(self, policies: Sequence[PolicyChoice]) -> str:
        """The scenario with these policies, complete, and with what nobody wrote marked."""
        table = msgspec.to_builtins(self.spec)
        table["policy"] = {
            choice.label: {"name": choice.name} | msgspec.to_builtins(choice.params)
            for choice in policies
        }
        table["inputs"] |= _policy_digests(policies)
        text = tomli_w.dumps(_without_none(table))
        lines = text.splitlines()
        for key, number in key_lines(text).items():
            is_table = lines[number - 1].startswith("[")
            given = any(written[: len(key)] == key for written in self.written)
            if not (is_table or given or key[0] == "inputs"):
                lines[number - 1] += "  # default"
        return "\n".join(lines) + "\n"


def load_scenario(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Read and check a scenario file, or the one in the directory of an earlier run.

    overrides: `key=value`, as `workload.0.rate_rps=800`; the value is TOML, or else text.
    Paths in the file start from its folder, paths in overrides from the working directory.
    Raises ScenarioError, whose message is one line.
    """
    path = Path(path)
    file = path / "scenario.toml" if path.is_dir() else path
    document = Document.read(file, overrides)
    if "scenario" in document.data and "cluster" not in document.data:
        raise ScenarioError(
            f"{file} is a study; expected a scenario, such as the one it names (mainspring sweep "
            "takes a study)"
        )
    return _checked(document, overrides)


def build_scenario(table: Mapping[str, Any], overrides: Sequence[str] = ()) -> Scenario:
    """Make a scenario in code: a table with the keys of a scenario file.

    Paths in it start from the working directory. Overrides and errors are those of
    `load_scenario`; the table itself is not changed.
    """
    data = deepcopy(dict(table))
    return _checked(Document(data, overrides, source="scenario", folder=Path()), overrides)


def _checked(document: Document, overrides: Sequence[str]) -> Scenario:
    written = frozenset(key for key, _ in document.leaves())
    _make_paths_absolute(document)
    spec = document.decode(Spec)
    if spec.warmup_s >= spec.duration_s:
        limit = f"expected less than duration_s, {show(spec.duration_s)}"
        raise document.error(("warmup_s",), f"= {show(spec.warmup_s)}; {limit}")
    _check_cluster(document, spec.cluster)
    models = tuple(_models(document, spec))
    _check_workloads(document, spec, [model.name for model in models])
    if spec.answers is not None and len(spec.answers.errors) not in (1, len(models)):
        limit = f"expected one for each of {len(models)} models, or one for all"
        raise document.error(("answers", "errors"), f"has {len(spec.answers.errors)}; {limit}")
    _check_faults(document, spec)
    policies = tuple(_policy(document, label) for label in spec.policy)
    return Scenario(
        spec=msgspec.structs.replace(spec, inputs=_inputs(document, spec, policies)),
        models=models,
        policies=policies,
        overrides=tuple(overrides),
        written=written,
    )


def _make_paths_absolute(document: Document) -> None:
    for key, value in document.leaves():
        if isinstance(value, str) and is_path(key, value):
            base = Path() if document.set_on_command_line(key) else document.folder
            document.set(key, str((base / value).resolve()))


def is_path(key: Key, value: str) -> bool:
    """Whether a key of a scenario has the path of a file for its value."""
    match key:
        case ("workload", int(), "path"):
            return True
        case ("models", int(), "profile"):
            return ".toml" in value
        case ("policy", str(), "name"):
            return ":" in value
    return False


def _check_cluster(document: Document, cluster: ClusterSpec) -> None:
    if cluster.lanes > 1 and (cluster.noise != "none" or cluster.clocks):
        key = "noise" if cluster.noise != "none" else "clocks"
        raise document.error(
            ("cluster", key),
            "is for GPUs with one lane; shared ones vary by themselves (sim/shared.py)",
        )
    if cluster.lanes > 1 and cluster.engines == 1:
        raise document.error(
            ("cluster", "engines"),
            f"= 1 does not go with lanes = {cluster.lanes}: what takes turns has no second lane",
        )
    if cluster.noise != "none" and any(cluster.delays_us.each()["overrun"]):
        raise document.error(
            ("cluster", "noise"),
            "does not go with cluster.delays_us.overrun, which spreads the same durations; "
            "leave one of them out",
        )
    for i, clock in enumerate(cluster.clocks):
        if clock.gpu is not None and clock.gpu >= cluster.gpus:
            raise document.error(
                ("cluster", "clocks", i, "gpu"),
                f"= {clock.gpu}; expected a GPU from 0 to {cluster.gpus - 1}",
            )


def _models(document: Document, spec: Spec) -> Iterator[Model]:
    if not spec.models:
        raise document.error((), "no models; add a table [[models]] with a profile")
    names: set[str] = set()
    for i, models in enumerate(spec.models):
        key = ("models", i, "profile")
        try:
            profiles = find(models.profile)
        except ProfileError as error:
            raise document.error(key, f"= {show(models.profile)}; {error}") from None
        slo_ms = models.slo_ms or spec.slo_ms
        slo_ns = None if slo_ms is None else round(slo_ms * 1e6)
        for profile in profiles:
            pages = profile.pages(spec.cluster.page_mib * 2**20)
            if pages > spec.cluster.usable_pages:
                less = " less cluster.headroom" if spec.cluster.kept_pages else ""
                room = f"a GPU has {spec.cluster.usable_pages} (cluster.pages{less})"
                raise document.error(key, f"{profile.name} needs {pages} pages, but {room}")
            for copy in range(models.copies):
                name = profile.name if models.copies == 1 else f"{profile.name}.{copy}"
                if name in names:
                    raise document.error(
                        key, f"two models are called {name}; expected one name each"
                    )
                names.add(name)
                yield Model(name, profile, slo_ns, models.model)


def _check_workloads(document: Document, spec: Spec, model_names: Sequence[str]) -> None:
    if not spec.workload:
        raise document.error((), "no workload; add a table [[workload]] with a kind")
    for i, workload in enumerate(spec.workload):
        try:
            workload.select(model_names)
        except WorkloadError as error:
            raise document.error_in(("workload", i), str(error)) from None


def _check_faults(document: Document, spec: Spec) -> None:
    for i, fault in enumerate(spec.faults):
        gpu = getattr(fault, "gpu", 0)
        if gpu >= spec.cluster.gpus:
            have = f"0 to {spec.cluster.gpus - 1}" if spec.cluster.gpus > 1 else "0 alone"
            raise document.error(("faults", i, "gpu"), f"= {gpu}; there is {have} (cluster.gpus)")
        if fault.at_s >= spec.duration_s + spec.drain_s:
            end = f"the run ends by then, after {show(spec.duration_s + spec.drain_s)} s"
            raise document.error(("faults", i, "at_s"), f"= {show(fault.at_s)}; {end}")


def _policy(document: Document, label: str) -> PolicyChoice:
    key = ("policy", label)
    if not re.fullmatch(r"[\w.-]+", label):
        own = f'; a policy in a file gets name = "{label}" in a table such as [policy.mine]'
        raise document.error(
            key,
            "expected a label of letters, digits, '_', '-' and '.'" + (own if ":" in label else ""),
        )
    table = document.get(key)
    name = table.get("name", label) if isinstance(table, dict) else label
    try:
        policy = find_policy(name)
    except ScenarioError as error:
        plain = name == label and label not in POLICIES and ":" not in label
        hint = ", in a key name of this table" if plain else ""
        raise document.error(key, f"{error}{hint}") from None
    return PolicyChoice(label, name, policy, document.decode(policy.Params, key, ("name",)))


def _with_defaults(ref: str) -> PolicyChoice:
    """A policy that the scenario does not have, from the command line."""
    file, colon, name = ref.rpartition(":")
    if colon:
        ref = f"{Path(file).absolute()}:{name}"
    policy = find_policy(ref)
    try:
        return PolicyChoice(name, ref, policy, msgspec.convert({}, policy.Params))
    except msgspec.ValidationError as error:
        raise ScenarioError(
            f"--policy {name}: {error}; give its parameters in a table [policy.{name}] of the "
            f'scenario, beside name = "{ref}"'
        ) from None


def _inputs(document: Document, spec: Spec, policies: Sequence[PolicyChoice]) -> dict[str, str]:
    """The sha256 of every file that the arrivals and durations come from.

    Raises ScenarioError where one of them, or a policy, is not what the scenario recorded.
    """
    files: dict[str, Path] = {}
    for models in spec.models:
        file, dot_toml, _ = models.profile.partition(".toml")
        store = models.profile.partition("/")[0]
        files[file + dot_toml if dot_toml else store] = (
            Path(file + dot_toml) if dot_toml else DATA / f"{store}.toml"
        )
    for i, workload in enumerate(spec.workload):
        path = getattr(workload, "path", None)
        if path is not None:
            if not Path(path).is_file():
                hint = _NOT_SERVED if Path(path).name == SERVED else ""
                raise document.error(("workload", i, "path"), f"= {show(path)}; no such file{hint}")
            files[path] = Path(path)
    digests = {name: _sha256(file) for name, file in files.items()}
    now = digests | _policy_digests(policies)
    for name, recorded in spec.inputs.items():
        if now.get(name, recorded) != recorded:
            raise document.error(
                ("inputs", name),
                f"it has changed since (sha256 now {now[name][:12]}, then {recorded[:12]}); "
                "put the old one back, or remove this line to run with the new one",
            )
    return digests


def _policy_digests(policies: Sequence[PolicyChoice]) -> dict[str, str]:
    files = {str(file): file for file in (policy_file(choice.name) for choice in policies) if file}
    return {name: _sha256(file) for name, file in files.items()}


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _without_none(value: Any) -> Any:
    """TOML has no null: a key that is left out means the same."""
    if isinstance(value, dict):
        return {key: _without_none(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_none(child) for child in value]
    return value
