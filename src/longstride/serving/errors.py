"""Why a request was not answered, with the HTTP status that says so."""

from __future__ import annotations

from longstride.contract import LongstrideError

STOPPED = "The server stopped before this was done."


class ServingError(LongstrideError):
    """A request that is not answered; its message is for the client."""

    status = 500
    retry_after: int | None = None
    """seconds after which it may be worth asking again"""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status or self.status


class BadRequestError(ServingError):
    """It asks for something that there is not, or in a form that cannot be read."""

    status = 400


class OverloadedError(ServingError):
    """There is no room for it, or it would not be done in time; refused at once."""

    status = 503
    retry_after = 1


class DrainingError(OverloadedError):
    """The server, or the model that it asks for, is about to stop."""


class DeadlineError(ServingError):
    """Its time was over before it was done."""

    status = 504


class CancelledError(ServingError):
    """Whoever asked has gone."""

    status = 499
