#!/bin/sh
# Says what a build needs from the system, before anything is downloaded: `make` runs it first.
# PYTHON and CXX choose the interpreter and the compiler.
PYTHON=${PYTHON:-python3}
CXX=${CXX:-c++}
missing=""

lacks() { missing="$missing $1"; }

"$CXX" --version >/dev/null 2>&1 || lacks "a C++ compiler ($CXX);"
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  lacks "Python 3.11 or newer ($PYTHON);"
else
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || lacks "Python's venv with ensurepip;"
  "$PYTHON" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null \
    || lacks "Python's header Python.h;"
fi
# Where there is no compiler nobody can say which headers it would find.
if "$CXX" --version >/dev/null 2>&1; then
  echo '#include <gmp.h>' | "$CXX" -x c++ -fsyntax-only - 2>/dev/null || lacks "GMP's header gmp.h;"
fi
[ -z "$missing" ] && exit 0
echo "shieldfl cannot be built, for want of:${missing%;}" >&2
echo "On Debian 12: apt install git g++ make python3-venv python3-dev libgmp-dev" >&2
exit 1
