"""The statistical model behind the pick, as functions of arrays.

shrinkage  expected scores of settings with the luck removed
outlook    expected improvement of the pick from more training
"""
