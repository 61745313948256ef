"""What every test shares: the magneto under test, one thread, the same seeds, and a clean process state afterwards."""

import os
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).parent
STUB = os.environ.get("MAGNETO_STUB") == "1"

sys.path.insert(0, str(HERE))
if STUB:
    sys.path.insert(0, str(HERE / "stub"))
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import torch._dynamo  # graph_break() in programs: imported while one is recorded, it would hold the frame

import magneto

if os.environ.get("MAGNETO_TEST_BACKEND"):  # "eager": operator by operator, compared with eager bit by bit
    magneto.compile.__kwdefaults__["backend"] = os.environ["MAGNETO_TEST_BACKEND"]

if STUB:  # these test the extension's inside, and the stub has none
    collect_ignore_glob = ["test_evaluator*", "test_pending*", "test_docs*"]


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_capture: asserts what was captured, so the stub cannot pass it")
    config.addinivalue_line("markers", "slow: takes tens of seconds")


def pytest_collection_modifyitems(config, items):
    # torch.compile, once used, changes how modules are made in its process (its mutation guard): those tests come last
    items.sort(key=lambda item: item.path.name == "test_beside.py")
    if not STUB:
        return
    left_out = [item for item in items if item.get_closest_marker("needs_capture")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


# A fault of our own is a warning, since the user's answer is right all the same; a test that meets one and expects none has found something.
FAULTS = []


def pytest_warning_recorded(warning_message, nodeid):
    if "a fault of its own" in str(warning_message.message):
        FAULTS.append(f"{nodeid}: {warning_message.message}")


def pytest_terminal_summary(terminalreporter):
    for fault in FAULTS:
        terminalreporter.write_line(f"FAULT {fault}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if FAULTS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def a_clean_process():
    torch.set_num_threads(1)
    torch.backends.cudnn.deterministic = True  # or eager would not repeat its own bits on a GPU
    torch.backends.cudnn.allow_tf32 = False  # ten bits of a number: the last place of an input would show
    torch.manual_seed(0)
    random.seed(0)
    yield
    magneto.reset()
    assert torch.is_grad_enabled(), "the test left grad mode off"
    assert torch.get_default_dtype() is torch.float32, "the test left another default dtype"
    assert not torch.is_inference_mode_enabled() and not torch.is_autocast_enabled("cpu")
