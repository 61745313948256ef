"""Run by test_backends.py, with `python -m magneto run`."""
import sys

import torch

if __name__ == "__main__":
    print(sys.argv[1:])
    compiled = torch.compile(lambda x: torch.sin(x) * 2)
    x = torch.randn(4)
    assert torch.allclose(compiled(x), compiled(x))
    import magneto

    print(type(compiled).__name__)
    print(len(magneto.report().graphs), "graph")
