#!/usr/bin/env python3
"""A command tool: arguments on stdin, events and the result on stdout."""
import json
import os
import sys

PRICES = {"VNM": 82000, "FPT": 131500}


def tell(**event):
    print(json.dumps(event), flush=True)  # one line per event; it is in the log at once


symbol = json.load(sys.stdin)["symbol"]
tell(type="progress", message=f"Asking for {symbol}", progress=1, total=2)
if symbol not in PRICES:
    tell(error={"code": "unknown_symbol", "message": f"There is no {symbol}. There are: {', '.join(PRICES)}."})
    sys.exit()
price = PRICES[symbol]
tell(type="state", snapshot={"last_symbol": symbol})
tell(type="custom", name="quote", value={"symbol": symbol, "for": os.environ["HEADWATER_USER"]})
tell(
    message_content=f"{symbol} costs {price} VND.",
    block_list=[{"type": "text", "text": f"**{symbol}**: {price:,} VND"}],
    summary=f"{price:,} VND",
    artifact={"symbol": symbol, "price": price},
    ui_hints={"view": "card"},
)
