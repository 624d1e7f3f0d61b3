"""The state machine: what may happen to a sweep, in any order.

It does no more than to choose; what it does to a sweep stands in `scheduling_stage`.
"""

import sys
from collections import Counter
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from benchmarks.chaos import scheduling_end
from benchmarks.chaos.scheduling_specs import Spec, Wish, specs, troubles, wishes
from benchmarks.chaos.scheduling_stage import QUIET, Stage
from benchmarks.chaos.scheduling_way import Trouble
from benchmarks.chaos.scheduling_world import FUSES, Fuse, Killed

_WHICH = st.integers(0, 7)


def _driven(machine: "Scheduling") -> bool:
    return machine.stage is not None and machine.stage.term is not None


def _left(machine: "Scheduling") -> bool:
    return machine.stage is not None and machine.stage.term is None


def _works(machine: "Scheduling") -> bool:
    return _driven(machine) and bool(machine.of.under_way())


def _haunted(machine: "Scheduling") -> bool:
    stage = machine.stage
    return stage is not None and bool(stage.older or stage.world.orphans)


class Scheduling(RuleBasedStateMachine):
    """One sweep and everything that may happen to it."""

    happened: ClassVar[Counter[str]] = Counter()
    """The number of each event in all sweeps so far."""

    def __init__(self) -> None:
        super().__init__()
        self.stage: Stage | None = None
        self.spec: Spec = {}

    @property
    def of(self) -> Stage:
        """The sweep."""
        if self.stage is None:
            raise RuntimeError("there is no sweep yet")
        return self.stage

    @initialize(spec=specs(), slots=st.integers(1, 4))
    def create(self, spec: Spec, slots: int) -> None:
        """A sweep begins."""
        self.spec = spec
        self.stage = Stage(spec, slots)
        self.of.resume()
        self.of.turn()

    # ---- what goes well -------------------------------------------------------------------------

    @precondition(_works)
    @rule(which=_WHICH)
    def a_slice_comes_back(self, which: int) -> None:
        """One of those under way."""
        slices = self.of.under_way()
        self.of.work(slices[which % len(slices)], QUIET)
        self.of.turn()

    @precondition(_works)
    @rule()
    def all_come_back(self) -> None:
        """Before the driver looks."""
        for one in self.of.under_way():
            self.of.work(one, QUIET)
        self.of.turn()

    @precondition(_driven)
    @rule(seconds=st.sampled_from([0.0, 0.3, 40.0]), back=st.booleans())
    def time_passes(self, seconds: float, back: bool) -> None:
        """The wall clock may be set back meanwhile."""
        self.of.world.clock.sleep(seconds)
        if back:
            self.of.world.clock.wall -= 3 * seconds
        self.of.turn()

    # ---- what goes wrong ------------------------------------------------------------------------

    @precondition(_works)
    @rule(which=_WHICH, trouble=troubles(), alone=st.booleans())
    def a_slice_has_trouble(self, which: int, trouble: Trouble, alone: bool) -> None:
        """The others come back with it, or later."""
        slices = self.of.under_way()
        chosen = slices[which % len(slices)]
        for one in [chosen] if alone else slices:
            self.of.work(one, trouble if one is chosen else QUIET)
        self.of.turn()

    @precondition(_works)
    @rule(which=_WHICH, times=st.integers(1, 4))
    def workers_of_one_trial_die(self, which: int, times: int) -> None:
        """One after the other, as soon as they have it."""
        slices = self.of.under_way()
        place = slices[which % len(slices)].place
        for _ in range(times):
            for one in self.of.under_way():
                if one.place == place:
                    self.of.work(one, Trouble(dies=1))
            self.of.turn()

    @precondition(_driven)
    @rule()
    def the_driver_is_killed(self) -> None:
        """Between two turns."""
        self.of.gone(Killed())

    @precondition(_driven)
    @rule(kind=st.sampled_from(FUSES), count=st.integers(1, 5))
    def something_fails(self, kind: str, count: int) -> None:
        """In this turn of the driver or in a later one."""
        self.of.world.fuse = Fuse(kind, count)
        for one in self.of.under_way()[:count]:
            self.of.work(one, QUIET)
        self.of.turn()

    @precondition(_left)
    @rule(slots=st.integers(1, 4), more=st.sampled_from([0, 0, 0, 1, 3]), failed=st.booleans())
    def somebody_resumes(self, slots: int, more: int, failed: bool) -> None:
        """With more trials perhaps, and those that failed once more."""
        self.of.slots = slots
        wanted: dict[str, Any] = {"trials": self.of.oracle.mirror.wanted + more} if more else {}
        again: dict[str, Any] = {"retry_failed": True} if failed and more else {}
        self.of.resume(**wanted, **again)
        self.of.turn()

    @precondition(_driven)
    @rule(which=_WHICH)
    def a_bit_flips(self, which: int) -> None:
        """In a newest checkpoint."""
        self.of.damage(which)

    @precondition(_driven)
    @rule(takes_over=st.booleans())
    def another_driver_comes(self, takes_over: bool) -> None:
        """It is refused, but where the lock's file is gone."""
        if takes_over:
            self.of.usurp()
        else:
            self.of.second_driver()

    @precondition(_haunted)
    @rule()
    def the_past_goes_on(self) -> None:
        """A driver whom the sweep was taken from, or a slice whose driver is gone."""
        if self.of.older:
            self.of.old_driver()
        else:
            self.of.orphan()

    # ---- what people do -------------------------------------------------------------------------

    @precondition(_driven)
    @rule(times=st.integers(1, 2))
    def somebody_presses_ctrl_c(self, times: int) -> None:
        """Once: slices save and end. Twice: at once."""
        for _ in range(times):
            self.of.now.driver.ask_to_stop()
        self.of.turn()

    @precondition(_driven)
    @rule(wishes=st.lists(wishes(), min_size=1, max_size=2))
    def somebody_asks(self, wishes: list[Wish]) -> None:
        """From another terminal."""
        for verb, body in wishes:
            self.of.ask(verb, body)
        self.of.turn()

    # ---- the end --------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Nothing happens any more, and the sweep comes to its end."""
        if self.stage is None:
            return
        try:
            if sys.exception() is None:  # what was found before is the news
                self.of.settle()
                scheduling_end.check(self.of, self.spec)
                self.happened.update(self.of.ended)
                self.happened.update(self.of.happened())
        finally:
            self.of.close()
