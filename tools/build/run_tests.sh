#!/bin/sh
# run_tests.sh UNIT_FOLDER...: the tests of this repository, but for those of other tiers. One that
# fails does not keep others from running; those that failed are the last lines.
set -u
mkdir -p build
for part in meson e2e unit; do : > "build/$part-tests.log"; done  # there before `tail` looks
meson test -C build/meson --timeout-multiplier 3 --print-errorlogs \
    > build/meson-tests.log 2>&1 & meson=$!
tail --pid=$meson -n +1 -f build/meson-tests.log
wait $meson; status=$?

# Not `python -m pytest`, which would import the source tree. The unit tests compute, the others
# wait for processes a third of their time: two of these run at once, beside those. All end at about
# the same time.
# A test that stands still fails, and says where; the others have their own, shorter deadlines.
common="-q -rfEs --continue-on-collection-errors --timeout 600"
ignored=
for folder in "$@"; do ignored="$ignored --ignore=$folder"; done
# shellcheck disable=SC2086
pytest $common --durations=10 --durations-min=10 -m "not long" "$@" > build/unit-tests.log 2>&1 & unit=$!
# shellcheck disable=SC2086
pytest $common -n 2 --dist loadfile --durations=25 --durations-min=15 -m "not long" tests $ignored > build/e2e-tests.log 2>&1 & e2e=$!
tail --pid=$e2e -n +1 -f build/e2e-tests.log
wait $e2e || status=$?
wait $unit || status=$?
cat build/unit-tests.log

make --no-print-directory lint || status=$?
[ $status -eq 0 ] || echo "failed (or see lint, above):"
grep -hE '^ *[0-9]+/[0-9]+ .* (FAIL|TIMEOUT|ERROR) |^(FAILED|ERROR) ' \
    build/meson-tests.log build/e2e-tests.log build/unit-tests.log | sort -u | cut -c1-200
exit $status
