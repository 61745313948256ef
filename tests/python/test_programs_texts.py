"""Texts made of numbers that change, and what is printed of containers."""

import io
import logging

import pytest
import torch

from each_call import numbers, same_each_call

pytestmark = pytest.mark.needs_capture


def with_number(f):
    def program():
        return f, lambda g, k: g(numbers(k), k)

    return program


TEXTS = {
    "f-string": lambda x, k: (x + 1, f"k={k}"),
    "f-string with forms": lambda x, k: f"{k:04d}|{k!r:>5}|{k * 0.5:.2f}|{k / 3!s}|{x.shape}|{[k, (k, 'a')]}|{k:{k + 3}}",
    "format": lambda x, k: "step {} of {:>5} {name}".format(k, 10, name=k * 2),
    "percent": lambda x, k: ("step %d" % k, "%s-%5.1f" % (k, k * 0.5), "%(a)d" % {"a": k}),
    "str and repr": lambda x, k: (str(k), "n" + str(k), repr(k), format(k, "03d"), str((k, x.shape[0]))),
    "join": lambda x, k: ",".join([str(k), "b", f"{k + 1}"]) + "!",
    "kept": lambda x, k: {"name": f"layer{k}", "names": [f"{k}{n}" for n in range(2)]},
    "an error": lambda x, k: ValueError(f"bad {k}").args[0],
    "text of an error": lambda x, k: str(ValueError(k)) + str(ValueError(f"a{k}", k)),
    "none": lambda x, k: f"{k}" is None,
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_made_again_of_the_numbers_of_the_call(name):
    f = TEXTS[name]
    same_each_call(with_number(lambda x, k: (x * 2, f(x, k))), graphs=3 if name not in ("text of an error", "an error") else None)


READ = {
    "key": lambda x, k: {f"layer{k}": x},
    "look-up": lambda x, k: {"w0": x, "w1": x + 1, "w2": x + 2}.get(f"w{k}"),
    "comparison": lambda x, k: x if f"{k}" == "2" else x * 2,
    "membership": lambda x, k: x * 2 if f"{k}" in ("2", "3") or "1" in f"{k}" else x,
    "length": lambda x, k: x * len(f"{k * 7}"),
    "truth": lambda x, k: x if f"{k}" else x * 2,
    "method": lambda x, k: (x, f"a{k}".upper(), f"{k},{k}".split(","), str.upper(f"b{k}")),
    "index": lambda x, k: (x, f"a{k}"[1], list(f"{k}b"), [c for c in f"{k}c"]),
    "set": lambda x, k: (x, sorted({f"{k}", "2"})),
    "sorted": lambda x, k: (x, sorted([f"{k}", "3"]), max(f"{k}", "3"), [f"{k}", "3"].index("3")),
    "list methods": lambda x, k: (x, [f"{k}", "3"].count("3"), (lambda l: (l.remove(f"{k}"), l))([f"{k}", "3"])[1]),
    "number": lambda x, k: x * int(f"{k + 1}") + float(f"{k}.5"),
    "attribute": lambda x, k: getattr(torch, {"0": "sin", "1": "cos"}.get(str(k), "tan"))(x),
    "a name": lambda x, k: getattr(x, f"{['sin', 'cos'][k % 2]}")(),
    "unpacking": lambda x, k: (x, *f"{k}ab"),
    "map": lambda x, k: (x, list(map(str.upper, [f"a{k}"])), "".join(map(str, [k, k + 1]))),
    "an error": lambda x, k: (x, str(ValueError(f"a{k}", k)), f"{ValueError(k)}"),
}


@pytest.mark.parametrize("name", READ)
def test_who_reads_a_text_reads_that_of_the_call(name):
    same_each_call(with_number(READ[name]))


def test_texts_that_are_stored_outside():
    def program():
        log, names = [], {}

        def f(x, k):
            log.append(f"step {k:03d}")
            names["last"] = "at %d" % k
            f.text = str(x.shape[0])
            return x * 2

        return f, lambda g, k: (g(torch.ones(k % 3 + 2), k), list(log), dict(names), f.text)

    same_each_call(program, calls=8)


def test_a_counter_that_is_printed():
    def program():
        class Counter:
            n = 0

        counter = Counter()

        def f(x):
            counter.n += 1
            print(f"call {counter.n}", f"{counter.n * 0.5:.1f}")
            return x + 1

        return f, lambda g, k: (g(numbers(k)), counter.n)

    same_each_call(program, calls=12, graphs=3)


def test_messages_of_a_logger():
    def program():
        logger, stream = logging.getLogger("magneto.tests.texts"), io.StringIO()
        logger.propagate, logger.handlers = False, [logging.StreamHandler(stream)]
        logger.setLevel(logging.INFO)

        def f(x, k):
            logger.info(f"step {k}")
            logger.info("step %d %s", k, [k, {"a": (1, None)}])
            return x + 1

        return f, lambda g, k: (g(numbers(k), k), stream.getvalue())

    same_each_call(program, calls=10, graphs=3)


def test_containers_that_are_printed():
    def f(x, k):
        sizes = [1, k]
        print(sizes, {"a": sizes, "b": (None, 2.5, "c")}, x.shape, [])
        sizes.append({"k": [k]})
        print(sizes, sep="-")
        sizes[2]["k"].append(3)
        print("%s" % sizes, f"{sizes}")
        return x * len(sizes)

    same_each_call(with_number(f), graphs=3)


def test_containers_from_outside_that_are_printed():
    def program():
        shared = [1, {"a": 2}]

        def f(x, more):
            print(shared, more)
            shared.append(len(shared))
            print(shared)
            return x + 1

        def call(g, k):
            if k == 3:
                shared[1]["a"] = 5
            return g(numbers(k), {"k": [k // 2]}), list(shared)

        return f, call

    same_each_call(program, calls=5)


def test_a_list_of_tensors_that_is_printed_is_a_break():
    def f(x):
        print([x])
        return x + 1

    same_each_call(lambda: f, breaks=None)


def test_numbers_of_a_list_beside_one_that_is_changed():
    def program():
        def f(x, values):
            values[0] = values[1] + 1
            values[1], values[2] = values[2], values[1]
            return x * values[3] + values[1], list(values)

        def call(g, k):
            values = [1, 2 + k // 3, 3, 4 + k]
            return g(numbers(k), values), values

        return f, call

    same_each_call(program, calls=9)
