"""Deques, views of dicts and iterators from outside."""

import collections

import pytest
import torch

from each_call import numbers, same_each_call

pytestmark = pytest.mark.needs_capture


def test_a_history_of_tensors():
    def program():
        history = collections.deque(maxlen=3)

        def f(x):
            history.append(x * 2)
            return torch.stack(list(history)).sum(0), len(history), history[0] + history[-1]

        return f, lambda g, k: (g(numbers(k)), list(history))

    same_each_call(program, calls=9, graphs=4)


def test_a_history_in_a_module():
    def program():
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.history = collections.deque(maxlen=2)

            def forward(self, x):
                self.history.appendleft(x)
                total = 0
                for past in self.history:
                    total = total + past
                return total

        model = Model()

        def call(g, k):
            if k == 5:
                model.history.clear()
            if k == 7:
                model.history = collections.deque([numbers(9)], maxlen=4)
            return g(numbers(k)), list(model.history)

        return model, call

    same_each_call(program, calls=9)


def test_reads_see_what_has_changed():
    def program():
        queue = collections.deque([1, 2, 3])

        def f(x):
            for value in queue:
                x = x + value
            if 10 in queue:
                x = x * 2
            return x * queue[0] + queue[-1], len(queue), bool(queue), list(reversed(queue)), queue.count(2)

        def call(g, k):
            if k == 2:
                queue[1] = 10
            if k == 3:
                queue.rotate(1)
            if k == 5:
                queue.append(7)
            return g(numbers(k))

        return f, call

    same_each_call(program, calls=7)


def test_every_change_is_made_again():
    def program():
        queue = collections.deque([torch.ones(3), torch.zeros(3)], maxlen=4)

        def f(x):
            first = queue.popleft()
            queue.extend([x, x + 1])
            queue.rotate(1)
            last = queue.pop()
            queue.appendleft(first)
            queue.reverse()
            return first + last, len(queue), queue[1]

        return f, lambda g, k: (g(numbers(k)), list(queue), queue.maxlen)

    same_each_call(program, calls=8)


def test_one_that_is_full_and_one_that_is_not():
    def program():
        queues = [collections.deque([1.0], maxlen=2), collections.deque([1.0])]

        def f(x, queue):
            queue.append(2.0)
            return x * len(queue) + sum(queue)

        return f, lambda g, k: (g(numbers(k), queues[k % 2]), [list(queue) for queue in queues])

    same_each_call(program, calls=6)


def test_the_same_deque_twice():
    def program():
        queue, other = collections.deque([1, 2]), collections.deque([1, 2])

        def f(x, a, b):
            a.append(3)
            return x * len(b), a is b

        def call(g, k):
            for one in (queue, other):
                one.clear()
                one.extend([1, 2])
            return g(numbers(k), queue, (queue, other)[k % 2]), list(queue), list(other)

        return f, call

    same_each_call(program, calls=6)


def test_its_elements_may_be_other_arguments():
    def program():
        def f(x, queue):
            x.add_(1)
            return queue[0] * 2 + x

        def call(g, k):
            x, y = numbers(k), numbers(k + 5)
            return g(x, collections.deque([x if k % 2 else y])), x, y

        return f, call

    same_each_call(program, calls=6)


def test_changed_by_others_between_two_calls():
    def program():
        queue = collections.deque([torch.ones(3)])

        def f(x):
            queue.append(x)
            return queue[0] + x

        def call(g, k):
            result = g(numbers(k))
            queue.popleft()
            if k == 3:
                queue.appendleft(numbers(8))
            return result, list(queue)

        return f, call

    same_each_call(program, calls=6)


def test_an_empty_one():
    def program():
        queue = collections.deque()

        def f(x):
            try:
                return x + queue.popleft()
            except IndexError:
                return x * 2

        def call(g, k):
            if k % 2:
                queue.append(numbers(k))
            return g(numbers(k)), list(queue)

        return f, call

    same_each_call(program, breaks=None)


class Own(collections.deque):
    def __len__(self):
        return 7


def test_one_of_a_class_with_methods_of_its_own():
    def program():
        queue = Own([1, 2])

        def f(x):
            return x * len(queue) + queue[0]

        def call(g, k):
            queue[0] = k // 2
            return g(numbers(k))

        return f, call

    same_each_call(program, breaks=None)


@pytest.mark.parametrize("method", ["keys", "values", "items"])
def test_a_view_of_a_dict(method):
    def program():
        table = {"a": torch.ones(3), "b": torch.zeros(3)}

        def f(x, view):
            total = x
            for part in view:
                part = part[1] if isinstance(part, tuple) else len(part) if isinstance(part, str) else part
                total = total + part
            return total, len(view), bool(view), len(list(view))

        def call(g, k):
            if k == 2:
                table["a"] = numbers(k)
            if k == 4:
                table["c"] = numbers(k)
            return g(numbers(k), getattr(table, method)())

        return f, call

    same_each_call(program, calls=6)


def test_a_view_that_is_kept_while_its_dict_changes():
    def program():
        table = {"a": 1, "b": 2}
        keys, values = table.keys(), table.values()

        def f(x):
            return x * sum(values) if "b" in keys else x

        def call(g, k):
            if k == 2:
                table["a"] = 5
            if k == 3:
                del table["b"]
            return g(numbers(k))

        return f, call

    same_each_call(program)


def test_a_dict_that_is_written_to_beside_its_view():
    def program():
        def f(x, table, view):
            table["a"] = x * 2
            return sum(view), len(view)

        def call(g, k):
            table = {"a": numbers(k), "b": numbers(1)}
            return g(numbers(k), table, (table if k % 2 else {"a": numbers(3)}).values()), table

        return f, call

    same_each_call(program, breaks=None)


@pytest.mark.parametrize("kept", [False, True])
def test_an_iterator_is_advanced(kept):
    def program():
        def f(x, steps):
            for step in steps:
                if step.shape[0] == 1:
                    break
                x = x + step
            return x

        def call(g, k):
            steps = iter([numbers(k), numbers(k + 1), torch.ones(1), numbers(2)])
            if kept:
                return g(numbers(k), steps), list(steps)
            args = (numbers(k), steps)
            del steps
            return g(*args), list(args[1])

        return f, call

    same_each_call(program, graphs=2)


def test_zip_and_enumerate_over_arguments():
    def program():
        def f(x, pairs, steps):
            for a, b in pairs:
                x = x + a * b
            for i, step in steps:
                x = x * i + step
            return x

        def call(g, k):
            pairs = zip([1, 2], [numbers(k), numbers(1)])
            steps = enumerate([numbers(k)] * (2 + k // 3), start=1)
            return g(numbers(k), pairs, steps), list(pairs), list(steps)

        return f, call

    same_each_call(program)
