"""Every step that the ledger's tables have taken, one script each, run by `sweep.ledger.upgrade`.

A script is never changed once it was released; a new one is named ``r<number>_<what>.py``, with its
number as `revision` and the one before it as `down_revision`. Nothing goes back: the copy that is
made before the first step is the way back.
"""
