"""Exported policies: one file that runs without this project.

export   writes the file, and compares it with the trained policy
graph    preprocessing, filter, networks and action as an ONNX graph
traced   a user's torch module as a part of such a graph
formats  the graph in other formats, and one way to run files of all formats
plain    runs files of the safetensors format; copied beside such files
"""
