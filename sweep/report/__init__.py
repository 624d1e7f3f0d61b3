"""A sweep as a page to look at and to send: pictures and tables in one file, from views.

page         the file: its sections, their data, the library that draws them; page.js and page.css
pictures     the same pictures as PNG files
sections     what it says in words and tables
charts       its pictures as plain data
curves       learning curves, thinned, with intervals over seeds
timeline     what ran when, rungs, and where time went
importance   how much each setting decides, where trials are compared rung by rung
forest       a random forest and its functional analysis of variance
braille      curves as characters, for a terminal
markup       HTML from text, all of it escaped
"""
