"""Files that type checkers read, with the errors that they must report in comments.

``# error[CODE]`` at the end of a line: every checker reports an error there, mypy with this code;
``# error[CODE]: mypy ty``: only these do, and docs/typing.md says why. There is no other error.
"""
