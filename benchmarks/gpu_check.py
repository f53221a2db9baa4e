"""What has to be seen on a GPU once: python benchmarks/gpu_check.py, or make gpu-check.

In at most eight minutes on one GPU:

    memory      do captured graphs survive a reload on other pages, and what does a page cost to map
    answers     random loads, evictions and batches beside models that never move
    profile     three models at batches 1 to 16, how predictable they are; one of them 100,000 times
    bandwidth   of loads, against that of a bare copy from page-locked memory
    validate    live beside simulated, Clockwork at 50%, 90% and 130% of capacity

Leaves runs/gpu-check/gpu-check.json and index.html. Parts that no time is left for are named as
such. `--rehearse` runs the same on this CPU with tiny models: it tests the script, and no GPU.
"""

import argparse
import html
import json
import math
import random
import sys
import time
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from executor.device import Device
from executor.devices import open_device
from executor.models import Sources
from executor.wire import Bill, Setup
from mainspring import build_scenario, run
from mainspring.live import Box
from mainspring.profiling import draw, profile, steadiness
from mainspring.validate import validate
from profiles import Constant, Profile, ProfileWarning, read
from scheduler.memory import Contiguous, Paged
from scheduler.records import FOREVER, Load, Unload
from scheduler.worker import Engine, Worker

BUDGET_S: Final = 480.0
LOADS: Final = {"50%": 0.5, "90%": 0.9, "130%": 1.3}


class Plan(NamedTuple):
    """How much of everything. seconds: for each model's profile; runs_s: of each live run."""

    device: Literal["cpu", "cuda"]
    models: list[str]
    moved: list[str]
    batches: list[int]
    seconds: float
    often: str
    often_runs: int
    often_s: float
    steps: int
    runs_s: float
    page_bytes: int
    copy_bytes: int


GPU: Final = Plan(
    "cuda", ["resnet50", "bert-base", "vit-base"], ["mlp-tiny", "mlp", "bert-tiny", "resnet-tiny"],
    [1, 2, 4, 8, 16], 35.0, "mlp", 100_000, 25.0, 1_000, 8.0, 1 << 24, 1 << 29,
)  # fmt: skip
REHEARSAL: Final = Plan(
    "cpu", ["mlp", "bert-tiny"], ["mlp-tiny", "mlp"],
    [1, 2, 4], 3.0, "mlp-tiny", 10_000, 3.0, 100, 2.0, 1 << 24, 1 << 26,
)  # fmt: skip
ANY: Final = Constant(1_000_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-check"))
    given = parser.parse_args()
    warnings.simplefilter("ignore", ProfileWarning)
    if not given.rehearse and (why := _no_gpu()):
        print(f"gpu-check: nothing was checked, for {why}", file=sys.stderr)
        sys.exit(2)
    plan = REHEARSAL if given.rehearse else GPU
    out = given.out / f"{datetime.now():%Y%m%d-%H%M%S}"
    out.mkdir(parents=True)
    begin_s = time.monotonic()
    left_s: Callable[[], float] = lambda: BUDGET_S - (time.monotonic() - begin_s)  # noqa: E731
    came: dict[str, Any] = {"rehearsal": given.rehearse, "date": f"{datetime.now():%Y-%m-%d}"}
    parts: dict[str, tuple[float, Callable[[], Any]]] = {  # the seconds that it needs
        "memory": (30, lambda: memory(plan)),
        "answers": (60, lambda: answers(plan)),
        "profile": (3 * plan.seconds + 45, lambda: profiles(plan, out)),
        "often": (plan.often_s + 10, lambda: often(plan, out)),
        "bandwidth": (10, lambda: bandwidth(plan, out)),
        **{
            f"validate {name}": (
                3 * plan.runs_s + 30,
                lambda share=share, name=name: validated(plan, out, share, came, name),
            )
            for name, share in LOADS.items()
        },
    }
    for name, (needs_s, part) in parts.items():
        if left_s() < needs_s:
            came[name] = {"skipped": f"{needs_s:.0f} s are needed, {left_s():.0f} s were left"}
        else:
            print(f"{name} ... ", end="", flush=True)
            before_s = time.monotonic()
            try:
                came[name] = part()
            except Exception as error:  # the other parts are worth having
                came[name] = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
            came[name]["took_s"] = round(time.monotonic() - before_s, 1)
        print(_short(came[name]))
        (out / "gpu-check.json").write_text(json.dumps(came, indent=2) + "\n")
    (out / "index.html").write_text(_page(came, out))
    print(f"\nresults:  {out / 'gpu-check.json'}\npage:     {out / 'index.html'}")
    if any("error" in part for part in came.values() if isinstance(part, dict)):
        sys.exit(1)


def memory(plan: Plan) -> dict[str, Any]:
    """The kind of memory that the check has chosen, and the time of loads by pages."""
    name = plan.moved[-1]
    device = _device(plan, [name], 4)
    try:
        state = device.state()
        host_ms = []
        for i in range(50):
            begin_ns = time.perf_counter_ns()
            device.begin_load(0, range(i % 2 * 2, i % 2 * 2 + _pages(plan, name)))
            host_ms.append((time.perf_counter_ns() - begin_ns) / 1e6)
            _wait(device, Engine.COPY)
            device.unload(0)
        return {
            "device": state.name, "kind": state.kind, "contiguous": device.contiguous,
            "clock_mhz": state.clock_mhz, "temperature_c": state.temperature_c,
            "throttled": state.throttled,
            "begin_load_median_ms": round(float(np.median(host_ms)), 4),
            "pages_of_that_load": _pages(plan, name),
        }  # fmt: skip
    finally:
        device.close()


def answers(plan: Plan) -> dict[str, Any]:
    """Random loads, evictions and batches; every answer beside that of a model that never moves."""
    names = plan.moved * 3
    need = [_pages(plan, name) for name in names]
    room = max(max(need), sum(need) // 2)
    device, still = _device(plan, names, room), _device(plan, plan.moved, sum(need[: len(names)]))
    kind = Contiguous(room) if device.contiguous else Paged(room)
    brain = Worker(tuple(need), room, kind)
    rng = random.Random(1)
    at = wrong = batches = loads = 0
    try:
        for model in range(len(plan.moved)):
            still.begin_load(model, range(at, at + need[model]))
            _wait(still, Engine.COPY)
            at += need[model]
        inputs = [_inputs(name, rng) for name in plan.moved]
        for step in range(plan.steps):
            model = rng.randrange(len(names))
            if model not in brain.places:
                brain.submit(step, Load(step, 0, model, 0, FOREVER, 0))
                if not isinstance(brain.start(Engine.COPY, step), Load):
                    victim = rng.choice(list(brain.places))
                    brain.submit(step, Unload(step, 0, victim, 0, FOREVER, 0))
                    device.unload(victim)
                    continue
                device.begin_load(model, brain.places[model])
                done = _wait(device, Engine.COPY)
                brain.finish(Engine.COPY, 0, 0, done.duration_ns)
                loads += 1
            kind_of = model % len(plan.moved)
            tasks = [inputs[kind_of](rng) for _ in range(rng.randint(1, 4))]
            device.begin_infer(model, 4, tasks)
            still.begin_infer(kind_of, 4, tasks)
            one, other = _wait(device, Engine.EXEC), _wait(still, Engine.EXEC)
            batches += 1
            wrong += any(
                not np.array_equal(a[key], b[key])
                for a, b in zip(one.outputs, other.outputs, strict=True)
                for key in a
            )
        if wrong:
            raise AssertionError(f"{wrong} of {batches} batches answered otherwise")
        return {"steps": plan.steps, "loads": loads, "batches": batches, "wrong": wrong}
    finally:
        device.close()
        still.close()


def profiles(plan: Plan, out: Path) -> dict[str, Any]:
    """Profiles of the models, and how predictable they are."""
    done = profile(
        plan.models, plan.batches, out / "profile.toml",
        box=Box(plan.device), quantile=0.9999, loads=200, seconds=plan.seconds,
    )  # fmt: skip
    draw(done, out / "predictability.png")
    return {"rows": _rows(done), "notes": {one.name: one.note for one in done}}


def often(plan: Plan, out: Path) -> dict[str, Any]:
    """One model so often that p99.99 can be told."""
    quantile = 1 - 10 / plan.often_runs
    done = profile(
        [plan.often], [1], out / "often.toml",
        box=Box(plan.device), quantile=quantile, loads=10, seconds=plan.often_s,
    )  # fmt: skip
    return {"rows": _rows(done)}


def bandwidth(plan: Plan, out: Path) -> dict[str, Any]:
    """GB/s of the models' loads, and of a bare copy."""
    import torch

    source = torch.empty(plan.copy_bytes, dtype=torch.uint8)
    target = torch.zeros(plan.copy_bytes, dtype=torch.uint8, device=plan.device)
    if plan.device == "cuda":
        source = source.pin_memory()
    took_s = []
    for _ in range(10):
        begin_s = time.perf_counter()
        target.copy_(source, non_blocking=True)
        if plan.device == "cuda":
            torch.cuda.synchronize()
        took_s.append(time.perf_counter() - begin_s)
    limit = plan.copy_bytes / min(took_s) / 1e9
    rows = [
        {
            "model": one.name,
            "gb_s": round(one.weights_bytes / one.load.estimate_ns(0.5), 2),
            "of_the_limit": round(one.weights_bytes / one.load.estimate_ns(0.5) / limit, 3),
        }
        for one in read(out / "profile.toml")
    ]
    return {"limit_gb_s": round(limit, 2), "rows": rows}


def validated(
    plan: Plan, out: Path, share: float, came: dict[str, Any], name: str
) -> dict[str, Any]:
    """Clockwork live and simulated, at a share of what it carries in simulation."""
    contiguous = came.get("memory", {}).get("contiguous", True)
    if "capacity_rps" not in came:
        came["capacity_rps"] = _capacity(plan, out, contiguous)
    capacity = came["capacity_rps"]
    folder = out / f"validate-{name.rstrip('%')}"
    scenario = _scenario(plan, out, contiguous, share * capacity, plan.runs_s)
    result = validate(scenario, folder, "clockwork", 2, box=Box(plan.device))
    return {"verdict": result.verdict, "rate_rps": round(share * capacity, 1),
            "checks": json.loads(result.to_json())["checks"]}  # fmt: skip


def _capacity(plan: Plan, out: Path, contiguous: bool) -> float:
    """Requests a second that the simulation answers in time when it is asked for far more."""
    best = max(
        batch * 1e9 / durations.mean_ns()
        for one in read(out / "profile.toml")
        for batch, durations in one.exec.items()
    )
    scenario = _scenario(plan, out, contiguous, 1.5 * best, 4.0)
    (one,) = run(scenario, out / "capacity", ["clockwork"])
    return float(one.summary.goodput_rps or 0)


def _scenario(plan: Plan, out: Path, contiguous: bool, rate_rps: float, seconds: float) -> Any:
    name = plan.models[0]
    (one,) = [one for one in read(out / "profile.toml") if one.name == name]
    return build_scenario(
        {
            "name": "gpu-check", "seed": 1, "duration_s": seconds, "warmup_s": seconds / 4,
            "slo_ms": max(100.0, one.exec[plan.batches[-1]].estimate_ns(0.99) * 4e-6),
            "cluster": {
                "pages": 5 * one.pages(plan.page_bytes),
                "memory": "contiguous" if contiguous else "pages",
                "engines": 1 if plan.device == "cpu" else 2,
            },
            "models": [{"profile": f"{out}/profile.toml/{name}", "model": name, "copies": 8}],
            "workload": [{"kind": "poisson", "rate_rps": rate_rps}],
            "policy": {"clockwork": {}},
        }
    )  # fmt: skip


# ---- devices


def _device(plan: Plan, names: list[str], pages: int) -> Device:
    bills = [Bill(_pages(plan, name), ANY, {4: ANY}, name) for name in names]
    return open_device(Setup(pages, 0, bills, plan.device, plan.page_bytes), Sources())


def _pages(plan: Plan, name: str) -> int:
    from executor.models import size_of

    if name not in _SIZES:
        _SIZES[name] = size_of(name).weights
    return -(-_SIZES[name] // plan.page_bytes)


_SIZES: dict[str, int] = {}


def _inputs(name: str, rng: random.Random) -> Callable[[random.Random], dict[str, Any]]:
    """What makes one random request of a model."""
    from executor.models import build

    example = {key: x.numpy() for key, x in build(name).example.items()}

    def make(rng: random.Random) -> dict[str, Any]:
        numbers = np.random.default_rng(rng.getrandbits(32))
        return {
            key: numbers.integers(0, 1_000, x.shape)
            if x.dtype.kind == "i"
            else numbers.random(x.shape, dtype=np.float32)
            for key, x in example.items()
        }

    return make


def _wait(device: Device, engine: Engine) -> Any:
    end_s = time.monotonic() + 60
    while (done := device.poll(engine)) is None:
        if time.monotonic() > end_s:
            raise TimeoutError(f"{engine.name} did not end within 60 s")
    if done.error:
        raise RuntimeError(done.error)
    return done


def _no_gpu() -> str:
    try:
        import torch
    except ImportError:
        return "torch is not installed; pip install 'mainspring[executor,cuda13]' beside a GPU."
    if not torch.cuda.is_available():
        return "there is no CUDA GPU here that torch can use."
    return ""


# ---- the page


def _rows(done: list[Profile]) -> list[dict[str, Any]]:
    return [
        {
            "model": one.model, "batch": one.batch, "runs": one.n,
            "median_ms": round(one.median_ms, 5), "quantile": f"p{100 * one.quantile:g}",
            "over_median": round(one.ratio, 4), "predictable": one.predictable,
        }
        for one in steadiness(done)
    ]  # fmt: skip


def _short(part: dict[str, Any]) -> str:
    if why := part.get("skipped") or part.get("error"):
        return f"{'skipped' if 'skipped' in part else 'FAILED'}: {why}"
    plain = {
        k: v for k, v in part.items() if not isinstance(v, list | dict) and v not in ("", None)
    }
    return ", ".join(f"{key} {value}" for key, value in plain.items())


def _page(came: dict[str, Any], out: Path) -> str:
    title = "gpu-check" + (", a rehearsal on a CPU: no GPU was used" if came["rehearsal"] else "")
    parts = [f"<h1>{title}</h1><p>{came['date']}</p>"]
    for name, part in came.items():
        if not isinstance(part, dict):
            continue
        parts.append(f"<h2>{html.escape(name)}</h2><p>{html.escape(_short(part))}</p>")
        for rows in (part.get("rows"), part.get("checks")):
            if rows:
                parts.append(_table(rows))
        if name == "profile" and (out / "predictability.png").exists():
            parts.append('<img src="predictability.png" width="700" alt="how predictable it is">')
    style = (
        "body{font:14px sans-serif;max-width:60em;margin:2em auto}"
        "td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}"
    )
    head = f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{style}</style>"
    return head + "\n".join(parts) + "\n"


def _table(rows: list[dict[str, Any]]) -> str:
    keys = list(rows[0])
    head = "".join(f"<th>{html.escape(key.replace('_', ' '))}</th>" for key in keys)
    lines = [
        "".join(f"<td>{html.escape(_cell(row.get(key)))}</td>" for key in keys) for row in rows
    ]
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else ""
    return "" if value is None else str(value)


if __name__ == "__main__":
    main()
