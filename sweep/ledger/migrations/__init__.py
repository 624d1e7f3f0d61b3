"""All revisions of the ledger's tables, one script each, run by `sweep.ledger.upgrade`.

A released script is never changed. A new one is named ``r<number>_<what>.py``, with its number as
`revision` and its predecessor's as `down_revision`. There are no downgrades: the copy that is made
before the first script preserves the old ledger.
"""
