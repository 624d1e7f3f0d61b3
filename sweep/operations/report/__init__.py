"""A report about a sweep: pictures and tables in one HTML file, made from views.

page         the file: its sections, their data, the library that draws them; page.js and page.css
comparison   several sweeps on one page
pictures     the same pictures as PNG files
sections     its texts and tables
charts       its pictures as plain data
growth       the growth of the front of several objectives
curves       learning curves, thinned, with intervals over seeds
timeline     slices over time, rungs, and the use of time
importance   importance of each setting, comparing trials rung by rung
forest       a random forest and its functional analysis of variance
braille      curves as characters, for a terminal
markup       HTML from text, all of it escaped
"""
