"""A sweep tried before anything is written.

validate    forecasts the sweep: plan, costs, likely mistakes
smoke_test  trains a trainable briefly in a child process: exactness of restoring, costs
"""
