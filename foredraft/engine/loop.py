"""The owner of the step: one thread that runs all engines of a loaded model.

Clients put what they want into an inbox, and never wait for a pass; what becomes of it is delivered to them by a
function of theirs, from this thread. Engines that share a model take turns, step by step, since a pass overwrites what
the one before it returned.
"""

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue

from foredraft.engine.engine import Engine
from foredraft.engine.submission import Event, Submission
from foredraft.errors import OptionError

Deliver = Callable[[Event], None]
"""Takes the events of a submission, in order, in the thread of the loop; it must not block."""
_Message = Callable[[], None]

IDLE_S = 0.001
"""Wait where no engine can go on: the blocks they need are held by sequences that others step."""


class EngineLoop:
    """Runs engines in a thread of its own, which starts with the first submission and ends with `close`."""

    def __init__(self) -> None:
        self._owner = _Owner()
        # Not to be waited for: the collector may run in any thread, whatever that is doing.
        self._finalizer = weakref.finalize(self, _Owner.ask_to_stop, self._owner)
        _owners.add(self._owner)

    def submit(self, engine: Engine, submissions: Mapping[Submission, Deliver]) -> None:
        """Have submissions run, all from the same pass on. Raises OptionError when the loop is closed."""
        owner, wanted = self._owner, dict(submissions)
        owner.post(lambda: owner.add(engine, wanted))

    def check_may_wait(self) -> None:
        """Raise OptionError where the thread that asks would wait for itself."""
        if self._owner.waits_for_this_thread:
            raise OptionError(
                "the engine makes no step inside `exclusive`, nor while a trace is written: generate outside, or use "
                "`stepwise`"
            )

    def cancel(self, engine: Engine, submission: Submission) -> None:
        """End the sequences of a submission, if they are not over; nothing is delivered any more."""
        owner = self._owner
        if submission.is_over:
            return
        with contextlib.suppress(OptionError):  # a closed loop has cancelled everything
            owner.post(lambda: owner.cancel(engine, submission))

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """No step is made meanwhile, except by the thread that has entered. Waits for the step under way.

        Raises OptionError when the loop is closed.
        """
        with self._owner.exclusive():
            self._owner.check_open()
            yield

    def close(self) -> None:
        """Cancel everything, and end the thread after the step under way."""
        self._owner.stop()


class _Owner:
    """What the thread works on. It does not know of the loop object, so that one can be collected."""

    def __init__(self) -> None:
        self.closed = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._inbox: SimpleQueue[_Message | None] = SimpleQueue()
        self._posting = threading.RLock()
        self._thread: threading.Thread | None = None
        # Whoever waits for the step lock holds the turnstile meanwhile, so the thread cannot take it again at once.
        self._turnstile, self._stepping = threading.RLock(), threading.RLock()
        self._kept_by: int | None = None  # the thread that is in `exclusive`
        self._engines: dict[Engine, dict[int, tuple[Submission, Deliver]]] = {}

    def check_open(self) -> None:
        if self.closed:
            raise OptionError("this model was closed: load it anew")

    def post(self, message: _Message) -> None:
        with self._posting:  # so that nothing comes behind the end
            self.check_open()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="foredraft-engine", daemon=True)
                thread.start()  # where the system has no more threads, the next one that asks tries again
                self._thread = thread
            self._inbox.put(message)

    def add(self, engine: Engine, wanted: Mapping[Submission, Deliver]) -> None:
        submissions = self._engines.setdefault(engine, {})
        for submission, deliver in wanted.items():
            for output in submission.outputs:
                engine.add(output)
                submissions[output.sequence.id] = submission, deliver

    def cancel(self, engine: Engine, submission: Submission) -> None:
        submissions = self._engines.get(engine, {})
        submission.is_over = True
        for output in submission.outputs:
            submissions.pop(output.sequence.id, None)
            engine.cancel(output)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._turnstile, self._stepping:
            before, self._kept_by = self._kept_by, threading.get_ident()
            try:
                yield
            finally:
                self._kept_by = before

    @property
    def waits_for_this_thread(self) -> bool:
        """Whether no step is made until the thread that asks goes on."""
        return self._kept_by == threading.get_ident() or self._thread is threading.current_thread()

    def ask_to_stop(self) -> None:
        """Have the thread end after the step under way; sequences that are not over are cancelled by it."""
        with self._posting:
            self.closed = True
            self._inbox.put(None)

    def stop(self) -> None:
        """End the thread, and wait until it has, unless it waits for the thread that asks."""
        self.ask_to_stop()
        if self._thread is not None and not self.waits_for_this_thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._go_on():
                pass
        finally:  # of whatever breaks the thread, nobody is to wait for it
            self.ask_to_stop()
            self._take_messages([])
            self._cancel_all()

    def _go_on(self) -> bool:
        """Do what the inbox asks for, and one step of every engine; whether to go on."""
        first = None if self._engines else [self._inbox.get()]
        with self._turnstile:
            pass
        with self._stepping:
            going_on = self._take_messages(first or [])
            del first  # it knows the engine, which may be wanted to be collected
            progress = going_on and self._step_all()
        if self._engines and not progress:
            time.sleep(IDLE_S)
        return going_on

    def _take_messages(self, messages: list[_Message | None]) -> bool:
        """Do what these messages and all others in the inbox ask for; whether to go on."""
        with contextlib.suppress(Empty):
            while True:
                messages.append(self._inbox.get_nowait())
        for message in messages:
            if message is None:
                return False
            message()
        return True

    def _step_all(self) -> bool:
        """One step of every engine that has work; whether any could do something."""
        progress = False
        for engine in list(self._engines):
            if engine.has_work:
                progress |= self._step(engine)
            if not engine.has_work:
                for submission, deliver in list(self._engines[engine].values()):
                    self._tell(engine, submission, deliver)  # whose end came in a step by hand
                del self._engines[engine]
        return progress

    def _step(self, engine: Engine) -> bool:
        submissions = self._engines[engine]
        try:
            concerned = engine.step()
        except Exception as error:  # a fault of ours; whoever was not in the pass goes on
            concerned = engine.end_all(error)
        told: set[int] = set()
        for output in concerned:
            submission, deliver = submissions.get(output.sequence.id, (None, None))
            if submission is None or deliver is None or id(submission) in told:
                continue
            told.add(id(submission))
            self._tell(engine, submission, deliver)
        return bool(concerned)

    def _tell(self, engine: Engine, submission: Submission, deliver: Deliver) -> None:
        """Deliver what is new. A client that cannot take it loses its sequences, and nobody else anything."""
        try:
            for event in submission.news():
                deliver(event)
        except Exception:
            submission.is_over = True
        if submission.is_over:
            self.cancel(engine, submission)

    def _cancel_all(self) -> None:
        for engine, submissions in list(self._engines.items()):
            for submission, deliver in list(submissions.values()):
                self.cancel(engine, submission)
                with contextlib.suppress(Exception):
                    deliver(OptionError("this model was closed while it was generating"))
        self._engines.clear()

    def before_fork(self) -> None:
        """Wait for the step under way: the child must find everything between two steps."""
        self._turnstile.acquire()
        self._stepping.acquire()

    def after_fork_in_parent(self) -> None:
        self._stepping.release()
        self._turnstile.release()

    def after_fork_in_child(self) -> None:
        """The thread is the parent's, and so are the sequences it was running."""
        engines = list(self._engines)
        self._begin_anew()
        for engine in engines:
            engine.drop_all()


_owners: "weakref.WeakSet[_Owner]" = weakref.WeakSet()


def _stop_all() -> None:
    """At the end of the process, while threads can still be waited for."""
    for owner in list(_owners):
        owner.stop()


class _Forking(threading.local):
    """Those that a thread waited for before its fork. Several threads may fork at the same time."""

    owners: tuple[_Owner, ...] = ()


_forking = _Forking()


def _before_fork() -> None:
    _forking.owners = tuple(sorted(_owners, key=id))  # in the same order in all threads, lest two wait for each other
    for owner in _forking.owners:
        owner.before_fork()


def _after_fork_in_parent() -> None:
    for owner in _forking.owners:
        owner.after_fork_in_parent()
    _forking.owners = ()


def _after_fork_in_child() -> None:
    for owner in _forking.owners:
        owner.after_fork_in_child()
    _forking.owners = ()


atexit.register(_stop_all)
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
