"""What each built-in operation gives, in a sentence, and an example: for `Ops.PLUS.__doc__` and the reference."""

from __future__ import annotations

from typing import Final, NamedTuple


class OperationText(NamedTuple):
    """`example` is a call in Python, without `Ops.`; `result` what it gives, as Python shows it. Both may be empty."""

    says: str
    example: str = ""
    result: str = ""


T = OperationText

TEXTS: Final[dict[str, OperationText]] = {
    "EXPLODE": T("A row for each element of a list or set; pairs of a dict; none for None. A text is refused.",
                 "EXPLODE([7, 8])", "[(7,), (8,)]"),
    "EXPLODE_INDEXED": T("A row for each element with its index.", 'EXPLODE_INDEXED(["a"])', "[(0, 'a')]"),
    "EXPLODE_MAP": T("A row for each key and value of a dict; none for None.", 'EXPLODE_MAP({"a": 1})', "[('a', 1)]"),
    "RANGE": T("A row for each number from the start up to the end, which is left out; perhaps by a step.",
               "RANGE(0, 3)", "[(0,), (1,), (2,)]"),
    "EXPAND": T("The elements of a list, one for each `.out` variable. A dict or a text is refused.",
                'EXPAND(["ann", 3])', "['ann', 3]"),
    "IDENTITY": T("The value itself.", "IDENTITY(5)", "5"),
    "TUPLE": T("A list of the values.", 'TUPLE("ann", 3)', "['ann', 3]"),
    "PRINTLN": T("Print the values where the row is, and give None. For debugging: a retry prints again."),
    "GET": T("The element at a key or index, None (or a third argument) where there is none or no collection.",
             'GET({"a": 1}, "b")', "None"),
    "MUST_GET": T("The element at a key or index, which has to be there: else the microbatch fails and says what is.",
                  'MUST_GET({"a": 1}, "a")', "1"),
    "FIRST": T("The first element of a list, None of an empty one or of None. A dict or a text is refused.",
               "FIRST([7, 8])", "7"),
    "LAST": T("The last element; otherwise as FIRST.", "LAST([7, 8])", "8"),
    "SIZE": T("How many elements a collection has, or characters a text; 0 for None.", "SIZE([7, 8])", "2"),
    "CONTAINS": T("Whether an element is in a list or set, or a key in a dict; False for None.",
                  "CONTAINS([7, 8], 8)", "True"),
    "INC": T("The value plus 1.", "INC(4)", "5"),
    "DEC": T("The value minus 1.", "DEC(4)", "3"),
    "INC_LONG": T("The value as an int, plus 1.", "INC_LONG(4.9)", "5"),
    "DEC_LONG": T("The value as an int, minus 1.", "DEC_LONG(4.9)", "3"),
    "PLUS": T("All values added, 0 for none. Texts and lists are joined.", "PLUS(1, 2, 3)", "6"),
    "PLUS_LONG": T("All values as ints, added.", "PLUS_LONG(1.9, 2)", "3"),
    "MINUS": T("The first value without the others; of one value, its negative.", "MINUS(10, 3, 2)", "5"),
    "MINUS_LONG": T("As MINUS, of the values as ints.", "MINUS_LONG(10.9, 3)", "7"),
    "TIMES": T("All values multiplied, 1 for none.", "TIMES(2, 3)", "6"),
    "TIMES_LONG": T("As TIMES, of the values as ints.", "TIMES_LONG(2.9, 3)", "6"),
    "DIV": T("The first value divided by the second, as a float.", "DIV(7, 2)", "3.5"),
    "FLOOR_DIV": T("The first value divided by the second, rounded down: the number of a whole window.",
                   "FLOOR_DIV(-7, 2)", "-4"),
    "MOD": T("What is left of the first value after division by the second.", "MOD(7, 2)", "1"),
    "SUM": T("The sum of the values, or of the elements of one list or set; 0 for None.", "SUM([1, 2, 3])", "6"),
    "MIN": T("The least of the values, or of the elements of one list or set; None of an empty one.", "MIN(3, 1)", "1"),
    "MAX": T("The greatest; otherwise as MIN.", "MAX([3, 1])", "3"),
    "EQUAL": T("Whether each value equals the next one; NaN equals none, in lists neither.", "EQUAL(1, 1, 1)", "True"),
    "NOT_EQUAL": T("Whether EQUAL is false.", "NOT_EQUAL(1, 2)", "True"),
    "LESS_THAN": T("Whether each value is less than the next one.", "LESS_THAN(1, 2, 3)", "True"),
    "LESS_THAN_OR_EQUAL": T("Whether no value is greater than the next one.", "LESS_THAN_OR_EQUAL(1, 1)", "True"),
    "GREATER_THAN": T("Whether each value is greater than the next one.", "GREATER_THAN(2, 1)", "True"),
    "GREATER_THAN_OR_EQUAL": T("Whether no value is less than the next one.", "GREATER_THAN_OR_EQUAL(2, 2)", "True"),
    "AND": T("Whether all values are true. Only None and False are false; 0 and empty texts are true.",
             "AND(0, 1)", "True"),
    "OR": T("Whether any value is true, as in AND.", "OR(None, False)", "False"),
    "NOT": T("Whether the value is None or False.", "NOT(None)", "True"),
    "IS_NULL": T("Whether the value is None.", "IS_NULL(None)", "True"),
    "IS_NOT_NULL": T("Whether the value is not None.", "IS_NOT_NULL(0)", "True"),
    "IS_EVEN": T("Whether a number is even.", "IS_EVEN(4)", "True"),
    "IS_ODD": T("Whether a number is odd.", "IS_ODD(4)", "False"),
    "IS_INSTANCE_OF": T("Whether the second value is of the class that comes first.", "IS_INSTANCE_OF(int, 4)", "True"),
    "CLASS_OF": T("The class of the value.", "CLASS_OF(4)", "<class 'int'>"),
    "TO_STRING": T("The values as one text.", 'TO_STRING("n=", 4)', "'n=4'"),
    "CURRENT_TASK_ID": T("The number of the task where the row is."),
    "CURRENT_MICROBATCH_ID": T("The number of the microbatch."),
    "CURRENT_TOPOLOGY_TYPE": T("The kind of topology that runs: `microbatch` or `query`."),
    "MODULE_INSTANCE_INFO": T("A dict about the running module: `module`, `tasks`, `threads` and others."),
    "CURRENT_RANDOM_SOURCE": T("A `random.Random` of this step and attempt; a retry draws other numbers."),
    "RANDOM_UUID7": T("A new UUID of version 7, as text; a retry makes another."),
}  # fmt: skip
