"""The statistical model behind the pick, as functions of arrays.

scores     measured scores as arrays
early_ends scores of trainings that ended early, comparable with those of full length
smoothing  scores smoothed by their learning curves
shrinkage  expected scores of settings with the luck removed
outlook    expected improvement of the pick from more training
"""
