# Ends what is left of a server and removes its folder, "$1", when the test process has ended or has closed the pipe that
# is our standard input. Every process of the server has "$1/data" as its working directory.
trap '' HUP INT TERM
cat >/dev/null
data=$1/data

# Signals all processes of the server; false if there is none.
signal_processes() {
    found=1
    for cwd in /proc/[0-9]*/cwd; do
        if [ "$cwd" -ef "$data" ]; then
            pid=${cwd#/proc/}
            kill "-$1" "${pid%/cwd}" 2>/dev/null
            found=0
        fi
    done
    return $found
}

# Repeats a command until it fails, for ten seconds.
repeat() {
    tries=200
    while [ $tries -gt 0 ] && "$@"; do
        sleep 0.05
        tries=$((tries - 1))
    done
}

# An immediate shutdown first: it also releases the shared memory, which a killed server leaves behind.
postmaster=$(head -n 1 "$data/postmaster.pid" 2>/dev/null)
if [ "/proc/$postmaster/cwd" -ef "$data" ] && kill -QUIT "$postmaster"; then
    repeat signal_processes 0
fi
repeat signal_processes KILL
sed -n 7p "$data/postmaster.pid" 2>/dev/null | while read -r _key id; do
    ipcrm -m "$id" 2>/dev/null
done
rm -rf -- "$1"
