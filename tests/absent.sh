#!/bin/sh
# What meson runs instead of a test that lacks something: absent.sh NEED WHY. It is skipped (77), or
# fails where PYFT_REQUIRE names the need (required.py has the rules).
echo "[$1]: $2"
case ",${PYFT_REQUIRE:-}," in
  *",-$1,"*) exit 77 ;;
  *,all,* | *",$1,"*)
    echo "PYFT_REQUIRE is [$PYFT_REQUIRE], and this would be skipped"
    exit 1
    ;;
esac
exit 77
