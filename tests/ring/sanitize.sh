#!/bin/sh
# Runs a test built with a sanitizer. 77 (skipped) where the sanitizer itself cannot start: older
# ones do not know the address layout of newer kernels.
output=$("$@" 2>&1)
code=$?
printf '%s\n' "$output"
case "$output" in
  *"unexpected memory mapping"* | *"cannot allocate shadow memory"*) exit 77 ;;
esac
[ $code = 77 ] && exit 1  # of the program itself: no reason to skip it
exit $code
