"""The `tidemill` command: arguments in, sentences, tables or JSON out. What a command does is in the packages below.

`cli.commands` lists the commands; each is loaded when it is called.
"""
