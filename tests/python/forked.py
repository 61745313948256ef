"""Work in a process of its own, with a time limit: a crash or a hang is an answer, too."""

import contextlib
import io
import os
import pickle
import select
import signal
import time
import traceback
import warnings


def told_by(work, seconds):
    """What work(tell) told, and how it ended: None where it came to its end. Its output goes nowhere (FORKED_TRACE=1: it does
    not)."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        loud = os.environ.get("FORKED_TRACE")
        status = 1
        with warnings.catch_warnings(), contextlib.nullcontext() if loud else contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                work(lambda line: os.write(writer, pickle.dumps(line)))
                status = 0
            except BaseException:
                traceback.print_exc()
        os._exit(status)
    os.close(writer)
    buffer, deadline, ended = b"", time.monotonic() + seconds, None
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            os.kill(child, signal.SIGKILL)
            ended = f"no answer in {seconds} s"
            break
        some = os.read(reader, 65536)
        if not some:
            break
        buffer += some
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    if status and not ended:
        ended = f"the process ended with {os.waitstatus_to_exitcode(status)}"
    told, stream = [], io.BytesIO(buffer)
    with contextlib.suppress(EOFError):
        while True:
            told.append(pickle.load(stream))
    return told, ended
