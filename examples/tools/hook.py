#!/usr/bin/env python3
"""An input hook: reads the input of a run, and may return another."""
import json
import re
import sys

request = json.load(sys.stdin)
for part in request["input"]:
    if part["type"] == "text":
        part["text"] = re.sub(r"\b\d{16}\b", "[card number]", part["text"])
json.dump({"input": request["input"]}, sys.stdout)
