"""Whether the server lives, whether it can answer, and its figures."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from longstride.serving.state import state_of

router = APIRouter(tags=["operations"])


@router.get("/health")
async def health() -> dict[str, str]:
    """The process lives and answers."""
    return {"status": "ok"}


@router.get("/ready", response_model=None, responses={503: {"description": "Not yet, or no longer"}})
async def ready(request: Request) -> JSONResponse:
    """200 when requests are taken; 503 while models are being made ready, and while the server drains.

    `decoders` says for each decoder of a model which ones decode sentences that are alone and those side by side;
    several where it is being tried which is faster.
    """
    state = state_of(request)
    good = state.ready and not state.draining
    runs = {
        model.spec.name: {name: one.runs for name, one in model.schedulers.items()} for model in state.service.models
    }
    models = {name: list(found) for name, found in runs.items()}
    word = "ready" if good else "draining" if state.draining else "starting"
    return JSONResponse({"status": word, "models": models, "decoders": runs}, 200 if good else 503)


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """For Prometheus."""
    return Response(state_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
