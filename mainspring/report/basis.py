"""What a run's numbers rest on: assumptions, versions, and how to run it again."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from mainspring.report.cases import Case, kind_of, stream_names
from mainspring.report.page import Cell, Code, Item, Lines, Section, Table
from mainspring.report.words import listed, n, words
from mainspring.scenario import Spec
from profiles import ProfileError, find
from results.table import NONE
from scheduler.policies import POLICIES
from workloads import Closed


def basis(cases: Sequence[Case]) -> Section:
    """What was assumed, once for runs of the same scenario."""
    items: list[Item] = []
    for what in dict.fromkeys(case.what for case in cases):
        alike = [case for case in cases if case.what == what]
        title = "" if len(alike) == len(cases) else listed([case.label for case in alike])
        items.append(Lines([*_assumptions(alike[0]), *map(_policy, alike)], title))
    return Section("basis", "What this rests on", "", items)


def again(cases: Sequence[Case]) -> Section:
    """Commands, versions, and the whole scenario of each run."""
    commands = [f"mainspring run {shlex.quote(str(case.run.directory))}" for case in cases]
    items: list[Item] = [Code("", "\n".join(commands)), versions(cases)]
    changed = dict.fromkeys(text for case in cases for text in case.record.get("overrides", ()))
    if changed:
        items.append(Lines(list(changed), "Changed on the command line (--set)"))
    items += [Code(f"The whole scenario of {case.label}", case.text, folded=True) for case in cases]
    lead = (
        "Each directory has its complete scenario, with checksums of what it read. Run again with "
        "the same versions it gives the same digest, of the fate of every request."
    )
    if any(case.live for case in cases):
        lead = (
            "Each directory has its complete scenario. A live run never repeats itself; its "
            "decisions do: mainspring replay."
        )
    return Section("again", "Run it again", lead, items)


def versions(cases: Sequence[Case]) -> Table:
    """With what each run was made."""
    rows: list[list[Cell]] = [
        [
            case.label,
            _when(case.record.get("started")),
            *(str(case.record.get(key, NONE)) for key in ("mainspring", "python", "machine")),
            str(case.spec.seed),
            case.summary.digest[:16],
        ]
        for case in cases
    ]
    head = ["run", "started", "mainspring", "Python", "machine", "seed", "digest of the outcomes"]
    packages = dict.fromkeys(_packages(case.record) for case in cases)
    return Table("Versions", head, rows, f"With {'; or '.join(packages)}.", words=(1, 2, 3, 4, 6))


def devices(spec: Spec) -> str:
    """The kind of GPU in brackets, where the profiles can be found and agree."""
    try:
        found = {profile.device for models in spec.models for profile in find(models.profile)}
    except ProfileError:
        return ""
    return f" ({found.pop()})" if len(found) == 1 else ""


def _assumptions(case: Case) -> Iterator[str]:
    spec, cluster = case.spec, case.spec.cluster
    if case.live:
        yield (
            "Live: real processes, messages and clocks on the machine named below. How punctual "
            "they were, and on what, is in live.json in its directory."
        )
    else:
        yield (
            "Simulated: the policy is the code that would run; GPUs, messages and time are those "
            "of a model of them."
        )
    yield from _durations(spec)
    room = cluster.usable_pages * cluster.page_mib / 1024
    kept = f"; {cluster.kept_pages:,} more are kept back" if cluster.kept_pages else ""
    lanes = "one batch at a time" if cluster.lanes == 1 else f"up to {cluster.lanes} at a time"
    yield (
        f"{n(cluster.gpus, 'GPU')}, with {room:,.2f} GiB for weights on each "
        f"({cluster.usable_pages:,} pages of {cluster.page_mib} MiB{kept}). A GPU executes "
        f"{lanes}, and loads weights meanwhile. All are empty at first."
    )
    faults = [
        f"{words(str(fault.__struct_config__.tag))} at {fault.at_s:g} s" for fault in spec.faults
    ]
    yield f"What goes wrong: {', '.join(faults)}." if faults else "No GPU fails."
    if not case.live:
        found = [
            f"{words(name)} {us[0]:g}" if len(us) == 1 else
            f"{words(name)} {min(us):g} to {max(us):g}, {sum(us) / len(us):.4g} on average"
            for name, us in cluster.delays_us.each().items() if any(us)
        ]  # fmt: skip
        yield (
            f"Delays in microseconds: {'; '.join(found)}. All others are 0; what has one number is "
            "always the same."
            if found
            else "Messages and decisions take no time."
        )
    yield from _traffic(spec)
    yield (
        f"Requests arrive for {spec.duration_s:g} s. Those of the first {spec.warmup_s:g} s are "
        f"not counted. What has no answer {spec.drain_s:g} s after the last counts as missed, as "
        "does what was rejected, dropped, or answered after its deadline."
    )


def _durations(spec: Spec) -> Iterator[str]:
    """Where durations come from. Files of one's own may be gone by now."""
    sources: dict[tuple[str, str], list[str]] = {}
    for models in spec.models:
        copies = f" ({models.copies} copies of each)" if models.copies > 1 else ""
        name = f"{models.profile}{copies}"
        try:
            profiles = find(models.profile)
        except ProfileError:
            yield f"Durations of {name}: from a profile that is not here any more."
            continue
        for profile in profiles:
            names = sources.setdefault((profile.device, profile.source), [])
            if name not in names:
                names.append(name)
    for (device, source), names in sources.items():
        said = f" ({source})" if source else ""
        yield f"Durations of {listed(names)}: as profiled on {device}{said}."


def _traffic(spec: Spec) -> Iterator[str]:
    names = stream_names(spec)
    closed = [i for i, workload in enumerate(spec.workload) if isinstance(workload, Closed)]
    open_loop = [i for i in range(len(names)) if i not in closed]
    if open_loop:
        kinds = [
            names[i] if (kind := kind_of(spec.workload[i])) in names[i] else f"{names[i]}: {kind}"
            for i in open_loop
        ]
        yield (
            f"Requests that come however the others are served, the same for every policy: "
            f"{'; '.join(kinds)}."
        )
    if closed:
        yield (
            "Clients that wait for their answer before they ask again, so that their rate depends "
            f"on the policy: {'; '.join(names[i] for i in closed)}."
        )


def _policy(case: Case) -> str:
    """A policy and the parameters that are not its defaults."""
    told = []
    for label, params in case.spec.policy.items():
        given = dict(params)
        name = given.pop("name", label)
        ours: Any = POLICIES.get(name)
        if ours is not None:
            defaults = msgspec.to_builtins(ours.Params())
            given = {key: value for key, value in given.items() if value != defaults.get(key)}
        named = label if label == name else f"{label} ({name})"
        values = ", ".join(f"{key} = {value}" for key, value in given.items())
        told.append(f"Policy {named}, seed {case.spec.seed}: {values or 'defaults throughout'}.")
    return " ".join(told)


def _packages(record: Mapping[str, Any]) -> str:
    packages = record.get("packages", {})
    return ", ".join(f"{name} {version}" for name, version in packages.items()) or "no packages"


def _when(started: Any) -> str:
    try:
        return f"{datetime.fromisoformat(started):%Y-%m-%d %H:%M} UTC"
    except (TypeError, ValueError):
        return NONE
