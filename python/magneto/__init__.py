"""Magneto: torch.compile, rewritten in C++.

    import magneto
    model = magneto.compile(model)

A compiled callable gives the answers of eager PyTorch; what cannot be captured runs in plain PyTorch and is reported.
"""

import torch  # its libraries must be loaded before the extension
from torch.compiler import allow_in_graph, assume_constant_result, disable, is_compiling, nested_compile_region, set_stance

from . import _C
from . import _logs
from . import _substitutes
from ._api import compile, error_on_graph_break, explain, mark_dynamic, mark_static, maybe_mark_dynamic, report, reset, substitute_in_graph
from ._backends import list_backends
from ._logs import set_logs

__all__ = ["allow_in_graph", "assume_constant_result", "compile", "disable", "error_on_graph_break", "explain", "is_compiling", "list_backends",
           "mark_dynamic", "mark_static", "maybe_mark_dynamic", "nested_compile_region", "report", "reset", "set_logs", "set_stance", "substitute_in_graph"]
__version__ = "0.1.0"

_logs._from_environment()

_reason = _C.unsupported()
if _reason is not None:
    import logging

    _C.disable_all(_reason)
    logging.getLogger("magneto").warning("%s; compiled functions run in eager", _reason)
