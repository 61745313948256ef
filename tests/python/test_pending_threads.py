"""Several threads, several traces."""
import threading

import torch

from test_pending_harness import T, tracing

X = torch.randn(4, 6)


def in_thread(f):
    box = []

    def run():
        try:
            box.append(f())
        except BaseException as error:
            box.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert box, "the thread hangs"
    if isinstance(box[0], BaseException):
        raise box[0]
    return box[0]


def test_another_thread_uses_a_pending_tensor():
    trace = T.Trace()
    with tracing(trace):
        y = X * 2
        assert torch.equal(in_thread(lambda: y + 1), X * 2 + 1)
        assert not T.is_pending(y) and trace.data_reads() >= 1
        z = y * 3
    assert torch.equal(z, X * 6)


def test_another_thread_reads_a_written_input():
    x = X.clone()
    with tracing():
        x.add_(1)
        assert torch.equal(in_thread(lambda: x.clone()), X + 1)
        assert in_thread(lambda: x.numpy().tolist()) == (X + 1).tolist()


def test_other_threads_do_not_trace():
    with tracing() as trace:
        assert in_thread(lambda: T.is_pending(torch.ones(3) * 2)) is False
        assert trace.ops() == [] and in_thread(T.in_trace) is False and T.in_trace()


def test_backward_in_another_thread():
    x = X.clone().requires_grad_()
    with tracing():
        out = (x * 2).sin().sum()
    in_thread(out.backward)
    assert torch.allclose(x.grad, 2 * (2 * x).cos())


def test_backward_in_another_thread_of_a_pending_loss():
    x = X.clone().requires_grad_()
    with tracing():
        out = (x * 2).sin().sum()
        in_thread(out.backward)
    assert torch.allclose(x.grad, 2 * (2 * x).cos())


def test_a_pending_tensor_of_one_trace_in_another():
    first, second = T.Trace(), T.Trace()
    first.enter()
    y = X * 2
    first.leave()
    with tracing(second):
        z = y + 1
        assert not T.is_pending(y) and T.is_pending(z)
        assert [second.input_tensor(i) is y for i in second.take_unclaimed()] == [True]
    assert torch.equal(z, X * 2 + 1) and first.data_reads() == 1 and first.find(z) is None


def test_a_tensor_of_a_dead_trace_is_an_outside_tensor():
    with tracing():
        y = X * 2
    with tracing() as second:
        z = y + 1
        y.add_(1)
        assert y.tolist() == (X * 2 + 1).tolist()
    assert torch.equal(z, X * 2 + 1)


def test_a_write_of_one_trace_is_seen_by_a_view_of_another():
    first, second = T.Trace(), T.Trace()
    with tracing(first):
        y = X * 2
        v = y.view(-1)
    with tracing(second):
        y.add_(1)
        assert v.tolist() == (X * 2 + 1).view(-1).tolist()


def test_many_traces_at_the_same_time():
    shared = torch.randn(4, 6)

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(4, 6, generator=generator)
        for _ in range(30):
            with tracing() as trace:
                y = x
                for i in range(10):
                    y = torch.relu(y @ shared.t() @ shared) * 0.1 + x
                    if i == 5:
                        y.sum().item()
            z = x
            for _ in range(10):
                z = torch.relu(z @ shared.t() @ shared) * 0.1 + x
            if not torch.equal(y, z):
                return False
        return True
    results = [None] * 4

    def run(i):
        results[i] = work(i)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert results == [True] * 4


def test_threads_that_read_while_another_traces():
    stop = threading.Event()
    published = []
    errors = []

    def reader():
        while not stop.is_set():
            for y, value in list(published[-3:]):
                if y.tolist() != [value] * 3:
                    errors.append((y, value))
    thread = threading.Thread(target=reader)
    thread.start()
    with tracing():
        for i in range(300):
            y = torch.zeros(3) + i
            published.append((y, float(i)))
            del y
    stop.set()
    thread.join(60)
    assert not thread.is_alive() and not errors
