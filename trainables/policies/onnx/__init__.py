"""The policy as one ONNX file.

export  writes the file and checks it
graph   preprocessing, filter, networks and action as a graph
"""
