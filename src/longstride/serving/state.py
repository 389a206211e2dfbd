"""What the endpoints of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import Request

from longstride.serving.detection import Detector
from longstride.serving.downloads import Downloads
from longstride.serving.keys import Keys
from longstride.serving.metrics import Metrics
from longstride.serving.service import Service


@dataclass
class ServerState:
    """One server."""

    service: Service
    keys: Keys
    metrics: Metrics
    downloads: Downloads
    detector: Detector = field(default_factory=Detector)
    ready: bool = False
    """whether requests are answered without waiting for what is made once"""
    draining: bool = False


def state_of(request: Request) -> ServerState:
    """Of the server that a request came to."""
    found: ServerState = request.app.state.server
    return found
