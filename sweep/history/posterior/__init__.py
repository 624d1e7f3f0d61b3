"""The statistical model behind the pick, as functions of arrays.

scores     measured scores as arrays
smoothing  scores smoothed by their learning curves
shrinkage  expected scores of settings with the luck removed
outlook    expected improvement of the pick from more training
"""
