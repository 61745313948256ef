"""What is told as it happens, through Python's logging: a logger ``magneto.<name>`` for each name of ``magneto.set_logs``."""

import logging
import os
import warnings

from . import _C


def set_logs(names="", **levels):
    """What is told from now on: ``set_logs("graph_breaks,+recompiles")``, or ``set_logs(graph_breaks=True, recompiles=True)``.

    A name after ``+`` is told each time it happens (``logging.DEBUG``), one after ``-`` is not told. Only what is named here is
    told; without any name, nothing is. Names of torch.compile's logs (``dynamo``, ``aot_graphs``, ``schedule``, ``kernel_code``) stand
    for ours. ``MAGNETO_LOGS`` in the environment does the same from the start, and so does ``TORCH_LOGS`` for the names that it shares.

    %s
    """
    signs = {True: "", False: "-", logging.INFO: "", logging.DEBUG: "+", logging.ERROR: "-", logging.WARNING: "-"}
    told = ",".join(filter(None, (names, *(signs[level] + name for name, level in levels.items() if level is not None))))
    _C.clear_logs()
    if unknown := _tell(told):
        raise ValueError(f"magneto.set_logs knows no {', '.join(unknown)}; its names are {', '.join(name for name, _ in _C.log_names())}")


if set_logs.__doc__:  # python -OO has none
    set_logs.__doc__ %= "\n    ".join(f"* ``{name}``: {meaning}" for name, meaning in _C.log_names())


def _tell(names):
    if not names:
        return []
    unknown = _C.set_logs(names)
    logger = logging.getLogger("magneto")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("# magneto: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
    for name, _ in _C.log_names():
        logging.getLogger(f"magneto.{name}").setLevel(logging.DEBUG)
    return unknown


def _from_environment():
    _tell(os.environ.get("TORCH_LOGS", ""))
    if unknown := _tell(os.environ.get("MAGNETO_LOGS", "")):
        warnings.warn(f"MAGNETO_LOGS: nothing is called {', '.join(unknown)}; the names are {', '.join(name for name, _ in _C.log_names())}",
                      RuntimeWarning, stacklevel=4)
