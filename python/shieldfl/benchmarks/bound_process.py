"""Running a measurement in a process of its own that is bound to as many cores as there are threads.

HEU works on all cores of its process and has no other setting. Where everybody is bound to the same cores, nobody
has more threads at work than the others, whatever their libraries start.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

__all__ = ["run_on_cores"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def run_on_cores(
    cores: int,
    function: Callable[Arguments, Result],
    *arguments: Arguments.args,
    **options: Arguments.kwargs,
) -> Result:
    """Return what a function of a module returns there, or raise what it raises.

    A fresh process, not a copy of this one: threads that libraries have started here would not be bound. Its standard
    output goes nowhere, because HEU logs to it. Where there are fewer cores than asked for it gets them all.
    """
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_bind, initargs=(cores,)) as pool:
        return pool.submit(function, *arguments, **options).result()


def _bind(cores: int) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    logging.disable(
        logging.WARNING
    )  # that 2048-bit keys are short is said by the page that explains the figures
