"""Parts of learning that know no algorithm.

returns        returns and advantages
schedules      values that change with the steps sampled
sequences      rows for a policy with a memory
replay         transitions for off-policy algorithms
standardizing  advantages with mean 0 and deviation 1
sgd            the learning loop: epochs of shuffled minibatches
torch_learner  its steps in torch
compiling      losses that torch compiles
fused          gradient steps in numpy, for small networks
"""
