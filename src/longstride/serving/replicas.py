"""The server as a Ray Serve application: replicas of one app, spread over the machines of a Ray cluster.

    serve run longstride.serving.replicas:build model=/models/en-de replicas=4 runtime=native precision=int8

Each replica is a whole server with a model and limits of its own; Ray Serve sends requests to the one with least to do,
and starts another in the place of one that dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longstride.contract import OptionError, option
from longstride.contract.bundled import BUNDLED
from longstride.contract.options import Options, parse
from longstride.runtime.libraries import silently
from longstride.serving.keys import Keys
from longstride.serving.metrics import Metrics
from longstride.serving.models import Models, ModelSpec, languages_of
from longstride.serving.settings import ServerSettings
from longstride.translator import load

if TYPE_CHECKING:
    from starlette.types import ASGIApp


@dataclass(frozen=True)
class ReplicaOptions(Options):
    """What a replica serves, and how many there are; beside these, the limits of ServerSettings can be told."""

    model: str = option(BUNDLED, "Model folder, under the same path on every machine.")
    languages: str | None = option(None, "Its languages, as en-de (default: as the folder's name says).")
    decoder: str | None = option(None, "Way of generating (default: the model's own).")
    drafter: str | None = option(None, "Model folder whose drafter is to draft for the model.")
    runtime: str = option("eager", "Carries model calls out: eager; native, onnx (processors); cuda-graph (CUDA).")
    precision: str = option("fp32", "fp32, fp16, bf16 or fp64; with native or onnx fp32 or int8.")
    keys: str | None = option(None, "File of API keys, whose limits then hold for each replica.")
    replicas: int = option(1, "How many there are.", least=1, most=10**4)
    processors: int = option(1, "Cores of each.", least=1, most=10**4)
    gpus: int = option(0, "GPUs of each.", least=0, most=1)


def build(told: Mapping[str, Any]) -> Any:
    """The application, for `serve run` and for files of Ray Serve's settings."""
    serve = silently("ray.serve")
    names = {field.name for field in fields(ReplicaOptions)}
    own = {name: value for name, value in told.items() if name in names}
    options: ReplicaOptions = parse(ReplicaOptions, own, "serve")
    limits = {name: value for name, value in told.items() if name not in own}
    settings: ServerSettings = parse(ServerSettings, limits, "serve")

    def app() -> ASGIApp:  # a function of its own: called in the replica, where the model is to be
        return replica(options, settings)

    resources = {"num_cpus": options.processors, "num_gpus": options.gpus}
    return serve.deployment(
        serve.ingress(app)(),
        name="longstride",
        num_replicas=options.replicas,
        ray_actor_options=resources,
        max_ongoing_requests=settings.max_waiting,
        graceful_shutdown_timeout_s=settings.drain_timeout,
    ).bind()


def replica(options: ReplicaOptions, settings: ServerSettings) -> ASGIApp:
    """One server."""
    from longstride.serving.app import make_app

    name = BUNDLED if options.model == BUNDLED else Path(options.model).resolve().name
    pair = languages_of(options.languages or ("en-de" if options.model == BUNDLED else name))
    if pair is None:
        raise OptionError(f"languages expects a pair as en-de for {name}, whose name tells none.")
    opened = partial(
        load,
        options.model,
        runtime=options.runtime,
        precision=options.precision,
        device="cuda" if options.gpus else "cpu",
        drafter=options.drafter,
        threads=options.processors,
    )
    metrics = Metrics()
    models = Models([ModelSpec(name, *pair, opened, options.decoder)], settings, metrics.watcher)
    return make_app(models, metrics, Keys.read(Path(options.keys)) if options.keys is not None else None)
