"""What a run comes to whose model the server does not see."""

from __future__ import annotations

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Result

from shieldfl.errors import PolicyError

__all__ = ["ResultWithoutModel"]


class ResultWithoutModel(Result):
    """Flower's result, with metrics alone: an empty model would be saved, or loaded, as if it were one.

    Parameters
    ----------
    result : with the metrics.
    opened_by : who has opened sums, in words.
    """

    def __init__(self, result: Result, opened_by: str) -> None:
        self._opened_by = opened_by
        self.train_metrics_clientapp = result.train_metrics_clientapp
        self.evaluate_metrics_clientapp = result.evaluate_metrics_clientapp
        self.evaluate_metrics_serverapp = result.evaluate_metrics_serverapp

    @property
    def arrays(self) -> ArrayRecord:  # type: ignore[override]
        """The model, which is not here: raises PolicyError."""
        raise PolicyError(
            f"the server has no model: sums were opened by {self._opened_by}. Let clients evaluate or save it; or have "
            'the server open sums, by shieldfl.opener = "aggregator" and a method such as full-he'
        )

    def __repr__(self) -> str:
        """Return the metrics, as Flower prints them."""
        return repr(
            Result(
                train_metrics_clientapp=self.train_metrics_clientapp,
                evaluate_metrics_clientapp=self.evaluate_metrics_clientapp,
                evaluate_metrics_serverapp=self.evaluate_metrics_serverapp,
            )
        )
