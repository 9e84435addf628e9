#!/bin/sh
# Reads {"symbol": "VNM"} and prints the price.
symbol=$(sed -n 's/.*"symbol" *: *"\([A-Z]*\)".*/\1/p')
echo "$symbol costs 82000 VND."
