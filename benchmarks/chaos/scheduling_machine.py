"""The state machine: random events of a sweep in random order.

This module only chooses the events; `scheduling_stage` executes them.
"""

import sys
from collections import Counter
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from benchmarks.chaos import scheduling_end
from benchmarks.chaos.scheduling_specs import Request, Spec, failures, requests, specs
from benchmarks.chaos.scheduling_stage import QUIET, Stage
from benchmarks.chaos.scheduling_way import Failure
from benchmarks.chaos.scheduling_world import FUSES, Fuse, Killed

#: Index of one of several things, modulo their number.
_WHICH = st.integers(0, 7)


def _has_driver(machine: "Scheduling") -> bool:
    return machine.stage is not None and machine.stage.term is not None


def _has_no_driver(machine: "Scheduling") -> bool:
    return machine.stage is not None and machine.stage.term is None


def _has_slices(machine: "Scheduling") -> bool:
    return _has_driver(machine) and bool(machine.current.running_slices())


def _has_old_processes(machine: "Scheduling") -> bool:
    stage = machine.stage
    return stage is not None and bool(stage.older or stage.world.orphans)


class Scheduling(RuleBasedStateMachine):
    """One sweep and its possible events."""

    happened: ClassVar[Counter[str]] = Counter()
    """Number of each event in all sweeps so far."""

    def __init__(self) -> None:
        super().__init__()
        self.stage: Stage | None = None
        self.spec: Spec = {}

    @property
    def current(self) -> Stage:
        """The sweep; RuntimeError before its creation."""
        if self.stage is None:
            raise RuntimeError("there is no sweep yet")
        return self.stage

    @initialize(spec=specs(), slots=st.integers(1, 4))
    def create(self, spec: Spec, slots: int) -> None:
        """Create a sweep and start its driver."""
        self.spec = spec
        self.stage = Stage(spec, slots)
        self.current.resume()
        self.current.turn()

    # ---- progress -------------------------------------------------------------------------------

    @precondition(_has_slices)
    @rule(which=_WHICH)
    def a_slice_comes_back(self, which: int) -> None:
        """End one running slice."""
        slices = self.current.running_slices()
        self.current.end_slice(slices[which % len(slices)], QUIET)
        self.current.turn()

    @precondition(_has_slices)
    @rule()
    def all_come_back(self) -> None:
        """End all running slices before the driver's next turn."""
        for one in self.current.running_slices():
            self.current.end_slice(one, QUIET)
        self.current.turn()

    @precondition(_has_driver)
    @rule(seconds=st.sampled_from([0.0, 0.3, 40.0]), back=st.booleans())
    def time_passes(self, seconds: float, back: bool) -> None:
        """Let time pass; the wall clock may be set back."""
        self.current.world.clock.sleep(seconds)
        if back:
            self.current.world.clock.wall -= 3 * seconds
        self.current.turn()

    # ---- failures -------------------------------------------------------------------------------

    @precondition(_has_slices)
    @rule(which=_WHICH, failure=failures(), alone=st.booleans())
    def a_slice_has_trouble(self, which: int, failure: Failure, alone: bool) -> None:
        """End one slice with a failure, and perhaps all others without one."""
        slices = self.current.running_slices()
        chosen = slices[which % len(slices)]
        for one in [chosen] if alone else slices:
            self.current.end_slice(one, failure if one is chosen else QUIET)
        self.current.turn()

    @precondition(_has_slices)
    @rule(which=_WHICH, times=st.integers(1, 4))
    def workers_of_one_trial_die(self, which: int, times: int) -> None:
        """Kill the workers of one trial, one after the other."""
        slices = self.current.running_slices()
        place = slices[which % len(slices)].place
        for _ in range(times):
            for one in self.current.running_slices():
                if one.place == place:
                    self.current.end_slice(one, Failure(dies=1))
            self.current.turn()

    @precondition(_has_driver)
    @rule()
    def the_driver_is_killed(self) -> None:
        """Kill the driver between two turns."""
        self.current.end_driver(Killed())

    @precondition(_has_driver)
    @rule(kind=st.sampled_from(FUSES), count=st.integers(1, 5))
    def something_fails(self, kind: str, count: int) -> None:
        """Let the driver or its database fail in this or a later turn."""
        self.current.world.fuse = Fuse(kind, count)
        for one in self.current.running_slices()[:count]:
            self.current.end_slice(one, QUIET)
        self.current.turn()

    @precondition(_has_no_driver)
    @rule(slots=st.integers(1, 4), more=st.sampled_from([0, 0, 0, 1, 3]), failed=st.booleans())
    def somebody_resumes(self, slots: int, more: int, failed: bool) -> None:
        """Start another driver, perhaps with more trials, and perhaps retrying failed ones."""
        self.current.slots = slots
        wanted: dict[str, Any] = (
            {"trials": self.current.oracle.mirror.wanted + more} if more else {}
        )
        again: dict[str, Any] = {"retry_failed": True} if failed and more else {}
        self.current.resume(**wanted, **again)
        self.current.turn()

    @precondition(_has_driver)
    @rule(which=_WHICH)
    def a_bit_flips(self, which: int) -> None:
        """Change one bit of a newest checkpoint."""
        self.current.damage(which)

    @precondition(_has_driver)
    @rule(takes_over=st.booleans())
    def another_driver_comes(self, takes_over: bool) -> None:
        """Start a second driver; it is refused unless the file of the lock was deleted."""
        if takes_over:
            self.current.usurp()
        else:
            self.current.second_driver()

    @precondition(_has_old_processes)
    @rule()
    def the_past_goes_on(self) -> None:
        """Continue a driver that has lost its sweep, or a slice whose driver has ended."""
        if self.current.older:
            self.current.old_driver()
        else:
            self.current.orphan()

    # ---- people ---------------------------------------------------------------------------------

    @precondition(_has_driver)
    @rule(times=st.integers(1, 2))
    def somebody_presses_ctrl_c(self, times: int) -> None:
        """Press Ctrl-C once, so that slices save and end, or twice, so that they end at once."""
        for _ in range(times):
            self.current.active.driver.ask_to_stop()
        self.current.turn()

    @precondition(_has_driver)
    @rule(requests=st.lists(requests(), min_size=1, max_size=2))
    def somebody_asks(self, requests: list[Request]) -> None:
        """Send requests from another terminal."""
        for verb, body in requests:
            self.current.ask(verb, body)
        self.current.turn()

    # ---- the end --------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Finish the sweep without further events, and check it."""
        if self.stage is None:
            return
        try:
            if sys.exception() is None:  # no error was found before
                self.current.finish()
                scheduling_end.check(self.current, self.spec)
                self.happened.update(self.current.ends)
                self.happened.update(self.current.events())
        finally:
            self.current.close()
