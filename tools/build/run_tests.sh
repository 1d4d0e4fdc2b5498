#!/bin/sh
# run_tests.sh UNIT_FOLDER...: every test of this repository, in two streams that share two cores.
# One that fails does not keep others from running; those that failed are the last lines.
set -u
mkdir -p build
for part in meson e2e unit nodes; do : > "build/$part-tests.log"; done  # there before `tail` looks

# The end-to-end tests wait for processes a third of their time, those of hosts half of it. What
# computes runs mostly in the time that these leave: so the other stream gives way, but little. At
# nice 19 unit tests stood still for half a minute where other work kept the machine busy.
beside() {
    result=0
    nice -n 5 meson test -C build/meson --timeout-multiplier 3 --print-errorlogs \
        > build/meson-tests.log 2>&1 || result=1
    nice -n 5 pytest -q -rfEs "$@" > build/unit-tests.log 2>&1 || result=1
    pytest -q -rfEs -m "not long" tests/softgpu tests/nodes > build/nodes-tests.log 2>&1 || result=1
    return $result
}
beside "$@" & others=$!

ignored="--ignore=tests/softgpu --ignore=tests/nodes"
for folder in "$@"; do ignored="$ignored --ignore=$folder"; done
# Not `python -m pytest`, which would import the source tree.
# shellcheck disable=SC2086
pytest -q -rfEs -m "not long" tests $ignored > build/e2e-tests.log 2>&1 & e2e=$!
tail --pid=$e2e -n +1 -f build/e2e-tests.log
status=0
wait $e2e || status=1
wait $others || status=1
cat build/meson-tests.log build/unit-tests.log build/nodes-tests.log

make --no-print-directory lint || status=1
[ $status -eq 0 ] || echo "failed (or see lint, above):"
grep -hE '^ *[0-9]+/[0-9]+ .* (FAIL|TIMEOUT|ERROR) |^(FAILED|ERROR) ' \
    build/meson-tests.log build/e2e-tests.log build/unit-tests.log build/nodes-tests.log |
    sort -u | cut -c1-200
exit $status
