"""Scripts written by hand: each is one thing that happens to agents."""

from collections.abc import Mapping

from tests.support.oracle.scripts import ALL, Moment, Played, Script

A, B, BOTH = ("a",), ("b",), ("a", "b")
#: Agent → policy, where there are two.
TWO = {"a": "one", "b": "two", "c": "two"}
END = Moment(BOTH, {"a": 1.0, "b": 2.0}, terminated=[ALL])

#: What happens → the episodes of each environment.
KNOWN: Mapping[str, Script] = {
    "an agent leaves and comes back": [
        [
            Played(
                BOTH,
                [
                    Moment(BOTH, {"a": 1.0, "b": 2.0}),
                    Moment(BOTH, {"a": 4.0, "b": 8.0}, terminated=B),
                    Moment(BOTH, {"a": 16.0, "b": 32.0}),
                    Moment(BOTH, {"b": 64.0}),
                    Moment(BOTH, {"b": 128.0}, truncated=B),
                    Moment(BOTH, {"b": 256.0}),
                    END,
                ],
            )
        ]
    ],
    "an agent appears in the last step": [
        [
            Played(A, [Moment(A), Moment(("a", "b", "c"), terminated=[ALL])]),
            Played(A, [Moment(A), Moment(BOTH, {"a": 1.0, "b": 2.0}, terminated=[ALL])]),
            Played(A, [Moment(A), Moment(A, {"a": 1.0, "c": 2.0}, truncated=[ALL])]),
        ]
    ],
    "an agent appears with its end": [
        [Played(A, [Moment(BOTH, {"b": 2.0}, terminated=B), Moment(BOTH), END])]
    ],
    "agents take turns": [
        [
            Played(
                A,
                [
                    Moment(B, {"a": 1.0, "b": 2.0}),
                    Moment(A, {"a": 4.0, "b": 8.0}),
                    Moment((), {"a": 16.0, "b": 32.0}),
                    Moment(B, {"a": 64.0, "b": 128.0}),
                    Moment(A, {"a": 256.0, "b": 512.0}),
                    Moment((), {"a": 1.0, "b": 2.0}, terminated=[ALL]),
                ],
            )
        ]
    ],
    "an agent is rewarded before it is there": [
        [Played(A, [Moment(A, {"b": 1.0}), Moment(BOTH, {"b": 2.0}), END])],
        [Played(A, [Moment(A, {"b": 1.0}), Moment(A, {"b": 2.0}, terminated=[ALL])])],
    ],
    "an agent is rewarded after its end": [
        [Played(BOTH, [Moment(A, {"b": 1.0}, terminated=B), Moment(A, {"b": 2.0}), END])]
    ],
    "the dead see nothing more": [
        [
            Played(BOTH, [Moment(A, {"b": 1.0}, terminated=B), Moment(BOTH), END]),
            Played(BOTH, [Moment((), {"a": 1.0, "b": 2.0}, terminated=[ALL])]),
        ]
    ],
    "an environment fails before anybody acts": [
        [Played((), [Moment(fails=True)]), Played(A, [Moment(A), END])],
        [Played((), [Moment(()), Moment(fails=True)]), Played((), [Moment(BOTH), END])],
    ],
    "an environment fails while agents wait": [
        [
            Played(BOTH, [Moment(A, {"b": 1.0}), Moment(A, {"a": 2.0}), Moment(fails=True)]),
            Played(BOTH, [Moment(BOTH)] * 5 + [END]),
        ]
    ],
    "an episode is over in both ways": [
        [
            Played(BOTH, [Moment(BOTH), Moment(BOTH, terminated=[ALL], truncated=[ALL])]),
            Played(BOTH, [Moment(A, terminated=B, truncated=B), Moment(A), END]),
            Played(BOTH, [Moment(BOTH), Moment((), terminated=[ALL], truncated=[ALL])]),
        ]
    ],
    "one is cut off as the episode ends": [
        [Played(BOTH, [Moment(BOTH), Moment(BOTH, terminated=[ALL], truncated=B)])],
        [Played(BOTH, [Moment(BOTH), Moment(BOTH, terminated=B, truncated=[ALL])])],
    ],
}
#: What is left out where no end is learnt, or as its environment fails: a row whose part began.
LEFT_OUT: Mapping[str, Script] = {
    "the last row of an agent that comes back": [
        [
            Played(
                BOTH,
                [
                    Moment(BOTH, {"a": 1.0, "b": 2.0}),
                    Moment(A, {"a": 1.0, "b": 4.0}, terminated=B),
                    Moment(BOTH, {"a": 1.0}),
                    Moment(BOTH, {"a": 1.0, "b": 8.0}),
                    Moment(A, {"a": 1.0, "b": 16.0}, terminated=B),
                    Moment(BOTH, {"a": 1.0}),
                    Moment(BOTH, {"a": 1.0, "b": 32.0}),
                    END,
                ],
            )
        ]
    ],
    "rows of an episode that fails in a later fragment": [
        [
            Played(BOTH, [Moment(BOTH, {"a": 3.0, "b": 5.0})] * 6 + [Moment(fails=True)]),
            Played(BOTH, [Moment(BOTH, {"a": 3.0, "b": 5.0})] * 4 + [END]),
        ]
    ],
}
