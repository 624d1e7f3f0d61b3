"""Parts of learning that do not depend on an algorithm.

returns        returns and advantages
schedules      values that change with the number of environment steps
sequences      batches of sequences, for policies with a memory
replay         replay buffers of transitions, for off-policy algorithms
device_rows    rows of a replay in the memory of a GPU
standardizing  advantages with mean 0 and deviation 1
sgd            the learning loop: epochs of shuffled minibatches
torch_learner  gradient steps in torch
statistics     numbers of gradient steps, fetched from their device at once
compiling      losses compiled by torch
graphs         gradient steps that are captured once and launched as a whole
fused          gradient steps in numpy, for small networks
"""
