"""The tools of both sides. As a program: the name is the argument, the arguments come on stdin."""

import json
import sys
import time


def lookup(place: str) -> str:
    return f"sunny in {place}"


def measure(what: str) -> str:
    # Long enough that a tool which is called after it ends before it.
    time.sleep(0.5)
    return f"{what} 42"


def order(symbol: str, n: int) -> str:
    return f"bought {n} {symbol}"


TOOLS = {"lookup": lookup, "measure": measure, "order": order}

if __name__ == "__main__":
    print(TOOLS[sys.argv[1]](**json.load(sys.stdin)))
