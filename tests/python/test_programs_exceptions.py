"""Exceptions: raised, caught, chained, on their way out; the traceback shows the program's own lines."""

import contextlib
import subprocess
import sys
import traceback

import pytest
import torch
import torch.nn.functional as F
from torch import arange, ones, randn

from device import DEVICE
from harness import fresh, made, same_as_eager


class Oops(ValueError):
    def __init__(self, message, payload):
        super().__init__(message)
        self.payload = payload


def test_a_raise_at_the_top():
    def f(x):
        y = x + 1
        if y.dim() == 1:
            raise ValueError(f"no vectors of length {y.shape[0]}")
        return y

    same_as_eager(f, randn(3), more=[((randn(3, 3),), {}), ((randn(4),), {})], raises=ValueError)


def test_a_raise_in_a_nested_callee():
    def inner(x):
        z = x * 2
        raise Oops("deep", [1, 2])

    def middle(x):
        return inner(x.relu()) + 1

    def f(x):
        y = x + 1
        return middle(y)

    same_as_eager(f, randn(3), raises=Oops)


def test_an_assertion_with_a_message():
    def f(x):
        assert x.shape[0] == 3, f"got {x.shape[0]} rows"
        return x.t()

    same_as_eager(f, randn(3, 2))


def test_an_assertion_without_a_message():
    def f(x):
        assert x.dtype is torch.float32
        return x + 1

    same_as_eager(f, randn(3))


def test_an_index_error():
    same_as_eager(lambda x: x[5] + 1, randn(3), raises=IndexError)
    same_as_eager(lambda xs: xs[5] + 1, [randn(3)], raises=IndexError)


def test_a_key_error_and_an_attribute_error():
    same_as_eager(lambda d: d["b"] + 1, {"a": randn(3)}, more=[(({"b": randn(2)},), {})], raises=KeyError)
    same_as_eager(lambda x: x.no_such_thing + 1, randn(3), raises=AttributeError)


def test_a_shape_mismatch():
    def f(x, w):
        y = x + 1
        z = y @ w
        return z * 2

    same_as_eager(f, randn(2, 3), randn(4, 5), more=[((randn(2, 3), randn(3, 5)), {})], raises=RuntimeError)


def test_a_dtype_mismatch():
    def f(x, i):
        rows = torch.index_select(x, 0, i)
        return rows + 1

    same_as_eager(f, randn(4, 2), torch.tensor([0.5, 1.0]), more=[((randn(4, 2), torch.tensor([0, 3])), {})], raises=RuntimeError)


@pytest.mark.skipif(DEVICE != "cpu", reason="a failed assertion in a CUDA kernel ends the process, in eager too")
@pytest.mark.parametrize("pick, error", [("index_select", IndexError), ("gather", RuntimeError)])
def test_an_index_out_of_range_in_a_kernel(pick, error):
    def f(x, i):
        y = x * 2
        picked = getattr(torch, pick)(y, 0, i)
        return picked + 1

    alone = f"import torch; torch.{pick}(torch.ones(3), 0, torch.tensor([0, 7]))"
    if subprocess.run([sys.executable, "-c", alone], stderr=subprocess.DEVNULL).returncode < 0:
        pytest.skip("torch itself crashes here: its wheels for aarch64 say this error with an instruction that not all have")
    same_as_eager(f, randn(3), torch.tensor([0, 7]), more=[((randn(3), torch.tensor([0, 2])), {})], raises=error)


@pytest.mark.skipif(DEVICE != "cpu", reason="a failed assertion in a CUDA kernel ends the process, in eager too")
def test_an_error_of_a_kernel_is_caught_in_its_try():
    def f(x, i):
        try:
            y = torch.index_select(x, 0, i)
        except IndexError:
            print("caught")
            y = x
        return y * 2

    same_as_eager(f, randn(3), torch.tensor([9]), more=[((randn(3), torch.tensor([2])), {})])


def test_a_value_error_of_a_kernel_is_caught_in_its_try():
    def f(x):
        try:
            return torch.linalg.cholesky(x)
        except torch.linalg.LinAlgError:
            return x * 0

    same_as_eager(f, -torch.eye(3), more=[((torch.eye(3),), {})])


def test_try_except_else_finally():
    def f(x, d, log):
        try:
            y = x * d["k"]
        except KeyError as error:
            log.append(f"no {error}")
            y = x
        else:
            log.append("else")
            y = y + 1
        finally:
            log.append("finally")
        return y

    same_as_eager(f, randn(2), {"k": 2}, [], more=[((randn(2), {}, []), {}), ((randn(2), {"k": "a"}, []), {})])


def test_return_in_try_and_in_finally():
    def f(x):
        try:
            return x + 1
        finally:
            print("on the way out")

    def g(x):
        for _ in range(2):
            try:
                return x + 1
            finally:
                return x * 100  # noqa: B012

    def h(x):
        for i in range(3):
            try:
                if i == 1:
                    break
                continue
            finally:
                x = x + i
        return x

    same_as_eager(f, randn(2))
    same_as_eager(g, randn(2))
    same_as_eager(h, randn(2))


def test_finally_runs_in_order_while_the_error_leaves():
    def inner(x, log):
        try:
            log.append(x + 1)
            raise RuntimeError("leaves")
        finally:
            log.append("inner")

    def f(x, log):
        try:
            return inner(x, log)
        finally:
            log.append("outer")
            log.append(x * 2)

    same_as_eager(f, randn(2), [], raises=RuntimeError)


def test_the_mutation_before_a_raise_stays():
    def f(x, d):
        x.add_(1)
        d["seen"] = x * 2
        raise LookupError("too late")

    same_as_eager(f, randn(2), {}, raises=LookupError)


def test_raise_from_and_from_none():
    def f(x, how):
        try:
            {}["k"]
        except KeyError as error:
            if how == "from":
                raise ValueError("wrapped") from error
            if how == "none":
                raise ValueError("hidden") from None
            raise ValueError("while handling")
        return x

    same_as_eager(f, randn(1), "from", more=[((randn(1), "none"), {}), ((randn(1), "context"), {})], raises=ValueError)


def test_a_bare_raise_and_a_stored_exception():
    def f(x):
        try:
            raise Oops("stored", x.shape[0])
        except Oops as error:
            kept = error
        try:
            raise kept
        except Oops as error:
            error.add_note("seen twice")
            raise

    same_as_eager(f, randn(2), raises=Oops)


def test_the_name_of_a_caught_exception_is_unbound_afterwards():
    def f(x):
        try:
            raise ValueError("v")
        except ValueError as error:
            text = str(error)
        return error, text  # noqa: F821

    same_as_eager(f, randn(2), raises=UnboundLocalError)


def test_exception_groups():
    def f(x):
        out = []
        try:
            raise ExceptionGroup("both", [ValueError("a"), KeyError("b"), TypeError("c")])
        except* ValueError as group:
            out.append(len(group.exceptions))
        except* KeyError:
            out.append("key")
        return x, out

    same_as_eager(f, randn(2), raises=ExceptionGroup)


def test_an_exception_is_a_result():
    def f(x):
        try:
            return torch.ones(2) + torch.ones(3)
        except RuntimeError as error:
            return x + 1, type(error), str(error), error.args

    same_as_eager(f, randn(2))


def test_the_traceback_read_inside():
    def fail():
        raise ValueError("inner")

    def f(x):
        y = x * 2
        try:
            fail()
        except ValueError:
            return y, traceback.format_exc().splitlines()[-1], len(traceback.format_exc().splitlines()) > 3

    same_as_eager(f, randn(2))


def test_an_exception_in_a_with_block():
    class Scope:
        def __init__(self, log, swallow):
            self.log, self.swallow = log, swallow

        def __enter__(self):
            self.log.append("enter")
            return self

        def __exit__(self, kind, error, tb):
            self.log.append((kind.__name__ if kind else None, str(error)))
            return self.swallow

    def f(x, log, swallow):
        with Scope(log, swallow):
            x = x + 1
            raise ValueError("inside")
        return x * 2

    same_as_eager(f, randn(2), [], True, more=[((randn(2), [], False), {})])


def test_suppress_and_exit_stack():
    def f(x, log):
        with contextlib.suppress(KeyError):
            {}["k"]
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, "last")
            stack.callback(log.append, "first")
            y = x + 1
        return y

    same_as_eager(f, randn(2), [])


def test_raising_an_instance_a_class_and_nonsense():
    def f(x, what):
        raise what

    same_as_eager(f, randn(1), KeyError, more=[((randn(1), made(lambda: KeyError("k", 2))), {}), ((randn(1), 3), {})], raises=KeyError)


def test_system_exit_and_keyboard_interrupt_pass_through():
    def f(x, what):
        y = x + 1
        try:
            raise what
        except Exception:
            return y

    same_as_eager(f, randn(1), made(lambda: SystemExit(3)), more=[
        ((randn(1), made(KeyboardInterrupt)), {}), ((randn(1), made(OSError)), {})], raises=SystemExit)


def test_a_division_by_zero_of_numbers():
    same_as_eager(lambda x, n: x * (1 / n), randn(2), 0, more=[((randn(2), 4), {})], raises=ZeroDivisionError)


def test_not_implemented_of_torch():
    def f(x):
        y = x.relu()
        return torch.nn.functional.conv2d(y, ones(1, 1, 1, 1, dtype=torch.complex64))

    same_as_eager(f, randn(1, 1, 2, 2), raises=RuntimeError)


def test_an_error_after_a_break():
    def f(x):
        print("before", x.sum().item())
        y = x + 1
        print("after")
        return y.view(7, 7)

    same_as_eager(f, randn(3), raises=RuntimeError)


def test_an_error_leaves_the_program_usable():
    @fresh
    def program():
        state = {"bad": True, "seen": []}

        def f(x):
            state["seen"].append(x)
            if state["bad"]:
                raise ValueError("bad")
            return x + len(state["seen"])

        return f, state

    same_as_eager(program, randn(2), change=lambda state: state.update(bad=False), raises=ValueError)


def test_an_index_out_of_range_in_front_of_attention_is_an_index_error():
    table = torch.randn(10, 8)

    def f(ids):
        x = torch.nn.functional.embedding(ids, table)[:, None]
        return torch.nn.functional.scaled_dot_product_attention(x * 2, x, x)

    same_as_eager(f, torch.tensor([[1, 2, 3]]), more=[((torch.tensor([[1, 2, 10]]),), {})])


REFUSED = {
    "softplus of int8": lambda x: F.softplus(x.to(torch.int8)),
    "selu of uint8": lambda x: F.selu(x.to(torch.uint8)),
    "silu in place of int16": lambda x: F.silu(x.to(torch.int16), inplace=True),
    "lerp of int32": lambda x: torch.lerp(x.to(torch.int32), x.to(torch.int32), 0.25),
    "gelu of bool": lambda x: F.gelu(x > 0),
    "softmax of complex": lambda x: F.softmax(x.to(torch.complex64), 0),
    "remainder of complex": lambda x: torch.remainder(x.to(torch.complex64), x.to(torch.complex64)),
    "logical shift of float": lambda x: x << x,
    "gcd of float": lambda x: torch.gcd(x, x),
    "hardtanh of bool": lambda x: F.hardtanh(x > 0),
    "layer norm of int64": lambda x: F.layer_norm(x.long(), (3,)),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_kernel_that_refuses_its_dtype_raises_at_its_line(refused):
    """Nothing after it happens, and what was caught is eager's error."""
    call = REFUSED[refused]

    @fresh
    def program():
        seen = []

        def f(x, y):
            y.add_(1)
            try:
                z = call(x)
                y.mul_(3)
                seen.append("after")
            except Exception as error:
                seen.append((type(error).__name__, str(error)[:60]))
                z = x
            finally:
                y.sub_(2)
            return z, y * 2

        return f, seen

    same_as_eager(program, arange(3.0), arange(3.0))
