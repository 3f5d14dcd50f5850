#!/bin/sh
# Says what `make test-aarch64` needs from the system, before anything is compiled.
missing=""

lacks() { missing="$missing, $1"; }

if aarch64-linux-gnu-g++ --version >/dev/null 2>&1; then
  echo '#include <gmp.h>' | aarch64-linux-gnu-g++ -x c++ -fsyntax-only - 2>/dev/null || lacks "GMP for arm64"
else
  lacks "the compiler aarch64-linux-gnu-g++"
fi
qemu-aarch64 --version >/dev/null 2>&1 || qemu-aarch64-static --version >/dev/null 2>&1 || lacks "qemu-aarch64"
[ -z "$missing" ] && exit 0
echo "make test-aarch64 lacks ${missing#, }: on Debian 12, dpkg --add-architecture arm64 && apt update &&" \
  "apt install g++-aarch64-linux-gnu qemu-user libgmp-dev:arm64" >&2
exit 2
