#!/bin/sh
# A command tool that acts at most once, however often it is started: the idempotency key names the order.
set -eu
arguments=$(cat)
symbol=$(printf '%s' "$arguments" | sed -n 's/.*"symbol" *: *"\([A-Z]*\)".*/\1/p')
quantity=$(printf '%s' "$arguments" | sed -n 's/.*"quantity" *: *\([0-9]*\).*/\1/p')

if [ -z "$symbol" ] || [ -z "$quantity" ]; then
    echo "no symbol or no quantity in $arguments" >&2  # the model reads the end of stderr
    exit 2                                             # any status but 0: the result is an error
fi
echo '{"type":"progress","message":"Placing the order"}'

order="$ORDERS/$HEADWATER_IDEMPOTENCY_KEY"
if [ ! -e "$order" ]; then
    mkdir -p "$ORDERS"
    printf '%s %s %s\n' "$HEADWATER_USER" "$symbol" "$quantity" > "$order.new"
    mv "$order.new" "$order"
fi
echo "Ordered: $symbol x$quantity"                     # plain text is the result, too
