"""Programs with assert statements about a tensor's data. (In test modules pytest writes other code for them.)"""


def with_a_message(x):
    assert x.sum() < 100, "too large"
    return x * 2


def negated(x):
    assert not (x > 100).any()
    return x * 2


def of_two(x):
    assert (x < 100).all() and x.sum() < 100, f"too large: {x.shape[0]}"
    return x * 2


def of_either(x):
    assert x.sum() < 100 or x.numel() == 0
    return x * 2


def after_a_write(x):
    y = x + 1
    y.add_(1)
    assert y.sum() < 100
    return y * 2


def inside(x):
    return with_a_message(x + 1) + 1


def writing(x, log):
    log.append(1)
    log.append(int(x.shape[0]))
    x.add_(1)
    assert x.sum() < 100
    return x * 2


def with_a_gradient(x):
    assert (x * x).sum() < 100
    return (x * x).sum()


PROGRAMS = [with_a_message, negated, of_two, of_either, after_a_write, inside]
