#!/bin/sh
# Runs a test built with a sanitizer. It counts as skipped where the sanitizer itself cannot start:
# older ones do not know the address layout of newer kernels.
output=$("$@" 2>&1)
code=$?
printf '%s\n' "$output"
case "$output" in
  *"unexpected memory mapping"* | *"cannot allocate shadow memory"*)
    exec "$(dirname "$0")/../absent.sh" sanitizers "it cannot start on this kernel" ;;
esac
[ $code = 77 ] && exit 1  # of the program itself: no reason to skip it
exit $code
