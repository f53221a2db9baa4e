"""`mainspring profiles`: what a model costs on a device; look at it, import it, check it."""

import tomllib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mainspring.scenario import load_scenario
from profiles import Profile, ProfileError, ProfileWarning, find, stores
from profiles.check import complaints, infeasible, mixed_devices, require_device
from profiles.importers import FORMATS, Given, import_profiles
from profiles.writer import write

app = typer.Typer(rich_markup_mode=None, help="What a model costs on a device.")

Device = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only profiles that were measured on it.")
]


@app.callback()
def profiles() -> None:
    """What a model costs on a device."""


@app.command("list")
def list_(
    pattern: Annotated[
        str | None,
        typer.Argument(metavar="[STORE|FILE.toml][/MODEL]", help="By default the stores."),
    ] = None,
    device: Device = None,
) -> None:
    """List stores, or the models of one."""
    if pattern is None:
        print(f"{'store':<20} {'models':>6}  devices")
        for store in stores():
            found = _found(store, None)
            devices = sorted({profile.device for profile in found})
            if device is None or device in devices:
                print(f"{store:<20} {len(found):6}  {', '.join(devices)}")
        return
    found = _found(pattern, device)
    width = max(5, *(len(profile.name) for profile in found))
    print(f"{'model':<{width}} {'weights MB':>10} {'load ms':>9}  {'batches':<18} mean ms")
    for profile in found:
        means = [durations.mean_ns() / 1e6 for durations in profile.exec.values()]
        print(
            f"{profile.name:<{width}} {profile.weights_bytes / 1e6:10,.1f} "
            f"{profile.load.mean_ns() / 1e6:9,.3g}  {_sizes(profile):<18} "
            f"{means[0]:.4g}{f' to {means[-1]:.4g}' if len(means) > 1 else ''}"
        )


@app.command()
def show(
    pattern: Annotated[str, typer.Argument(metavar="STORE|FILE.toml[/MODEL]")],
    device: Device = None,
) -> None:
    """Show all that is known of a model."""
    for i, profile in enumerate(_found(pattern, device)):
        if i:
            print()
        print(profile.name)
        print(f"  device   {profile.device}")
        print(f"  source   {profile.source}")
        print(f"  licence  {profile.licence}")
        if profile.note:
            print(f"  note     {profile.note}")
        print(
            f"  bytes    {profile.weights_bytes:,} weights, {profile.input_bytes:,} input, "
            f"{profile.output_bytes:,} output"
        )
        print(f"  load     {profile.load.mean_ns() / 1e6:.6g} ms")
        print(f"  {'batch':>7} {'mean ms':>10} {'p50 ms':>10} {'p99 ms':>10} {'a second':>10}")
        for batch, durations in profile.exec.items():
            mean_ns = durations.mean_ns()
            print(
                f"  {batch:7} {mean_ns / 1e6:10.6g} {durations.estimate_ns(0.5) / 1e6:10.6g} "
                f"{durations.estimate_ns(0.99) / 1e6:10.6g} {batch * 1e9 / mean_ns:10.5g}"
            )


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Published by others.")],
    out: Annotated[Path, typer.Option(metavar="MY.toml", help="Where to.")],
    format_: Annotated[
        str, typer.Option("--format", help=f"auto, or one of {', '.join(FORMATS)}.")
    ] = "auto",
    device: Annotated[str | None, typer.Option(help="If the file does not tell.")] = None,
    source: Annotated[str | None, typer.Option(help="Instead of what is known of it.")] = None,
    licence: Annotated[str | None, typer.Option(help="If no LICENSE lies beside it.")] = None,
    weights_mb: Annotated[float | None, typer.Option(help="10^6 bytes.")] = None,
    load_ms: Annotated[float | None, typer.Option(help="How long the weights load.")] = None,
    pcie_gb_s: Annotated[
        float | None, typer.Option(help="Compute load_ms from the weights; 10^9 bytes a second.")
    ] = None,
    input_kb: Annotated[float | None, typer.Option(help="1,000 bytes a request.")] = None,
    output_kb: Annotated[float | None, typer.Option(help="1,000 bytes a request.")] = None,
    batch: Annotated[int | None, typer.Option(help="If the file does not tell.")] = None,
    batches: Annotated[
        str | None, typer.Option(metavar="1,2,4", help="Which sizes to keep; all by default.")
    ] = None,
    interpolate: Annotated[
        str, typer.Option(metavar="linear", help="Fill sizes of --batches.")
    ] = "no",
    pool: Annotated[
        bool, typer.Option("--pool", help="Even out larger batches that are faster.")
    ] = False,
    spread: Annotated[str, typer.Option(help="mean, or normal with its deviation.")] = "mean",
    models: Annotated[str, typer.Option(metavar="PATTERN", help="Which of its models.")] = "*",
    mig: Annotated[int, typer.Option(help="ParvaGPU: the MIG slice.")] = 7,
    processes: Annotated[int, typer.Option(help="ParvaGPU: how many at once.")] = 1,
) -> None:
    """Make a profile file of what others measured and published."""
    given = Given(
        device=device,
        source=source,
        licence=licence,
        weights_mb=weights_mb,
        load_ms=load_ms,
        pcie_gb_s=pcie_gb_s,
        input_kb=input_kb,
        output_kb=output_kb,
        batch=batch,
        batches=_batches(batches),
        interpolate=interpolate,
        pool=pool,
        spread=spread,
        models=models,
        mig=mig,
        processes=processes,
    )
    if out.exists():
        raise ProfileError(f"--out {out} is there already; choose another name, or remove it")
    if out.suffix != ".toml":
        raise ProfileError(f"--out {out}; expected a name that ends in .toml")
    imported = import_profiles(file, format_, given)
    write(out, imported)
    first = imported[0]
    print(f"profiles: {out}: {len(imported)} of {first.device}; {first.licence}")
    print(f"note:     {first.note}")


@app.command()
def check(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="SCENARIO.toml|STORE|FILE.toml[/MODEL]...", show_default=False),
    ],
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="The device that they should be of.")
    ] = None,
    slo_ms: Annotated[
        float | None, typer.Option(min=0, help="Is it possible at all? A scenario has its own.")
    ] = None,
) -> None:
    """Warn of what is odd; exit with 1 if an SLO cannot be met by any batch."""
    from mainspring.report.words import n  # the page's package takes time to import

    limits: list[tuple[Profile, int | None]] = []
    for target in targets:
        if _is_scenario(target):
            with _silent():
                scenario = load_scenario(target)
            limits += [(model.profile, model.slo_ns) for model in scenario.models]
        else:
            limits += [(profile, None) for profile in _found(target, None)]
    found = list({id(profile): profile for profile, _ in limits}.values())
    if device is not None:
        require_device(found, device)
        said = [
            f"{profile.name} was measured on {profile.device}, and not on {device}"
            for profile in found
            if profile.device != device
        ]
    else:
        said = mixed_devices(found)
    for profile in found:
        said += complaints(profile)
    impossible = _impossible(limits, slo_ms)
    for line in (*said, *impossible):
        print(line)
    print(f"{n(len(found), 'profile')}, {n(len(said) + len(impossible), 'remark')}")
    if any(" under " not in line for line in impossible):
        raise typer.Exit(1)


def _impossible(limits: Sequence[tuple[Profile, int | None]], slo_ms: float | None) -> list[str]:
    """Where an SLO cannot be met: alone on a device, or under the rule of Nexus."""
    lines = []
    for profile, own_ns in limits:
        slo_ns = own_ns if slo_ms is None else round(slo_ms * 1e6)
        if slo_ns is not None:
            alone = infeasible(profile, slo_ns)
            lines.append(alone or infeasible(profile, slo_ns, times=2, rule="Nexus' rule"))
    return list(dict.fromkeys(line for line in lines if line))


def _found(pattern: str, device: str | None) -> list[Profile]:
    with _silent():
        found = find(pattern)
    return found if device is None else require_device(found, device)


def _is_scenario(target: str) -> bool:
    path = Path(target)
    if path.is_dir():
        return (path / "scenario.toml").is_file()
    if path.suffix != ".toml" or not path.is_file():
        return False
    try:
        return "cluster" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False


@contextmanager
def _silent() -> Iterator[None]:
    """Without the warnings that a profile gives when it is read: `check` says them itself."""
    with warnings.catch_warnings(action="ignore", category=ProfileWarning):
        yield


def _batches(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ProfileError(f"--batches {text}; expected whole numbers, such as 1,2,4,8") from None


def _sizes(profile: Profile) -> str:
    sizes = list(map(str, profile.batch_sizes))
    return ",".join(sizes) if len(sizes) <= 6 else f"{sizes[0]} ... {sizes[-1]} ({len(sizes)})"


__all__ = ["app"]
